package inversespec.edge.fuzz

import inversespec.edge.ChatMessage
import inversespec.edge.ChatRole
import inversespec.edge.bundle.Manifest
import inversespec.edge.text.*

/** `bundle.json`: what a bundle from a stranger states of itself. */
internal object ManifestTarget : Target {
    override fun run(data: ByteArray) {
        val manifest = Manifest.parse(data)
        manifest.contract.run { listOf(identity, eosIds, toString()) }
        for (name in manifest.variants.keys) {
            manifest.records(name)
            manifest.fingerprint(name)
        }
    }
}

/** `tokenizer.json`, a NUL byte and `chat_template.json`, then text through them and back. */
internal object TokenizerTarget : Target {
    private val texts = listOf("Hello, world 12 <|im_start|>user\n", "naïve – 日本語 🎈\u0000")

    override fun run(data: ByteArray) {
        val end = data.indexOf(0).let { if (it < 0) data.size else it }
        val template = ChatTemplate.fromJson(data.copyOfRange(minOf(end + 1, data.size), data.size))
        val tokenizer = Tokenizer.fromJson(data.copyOf(end))
        for (text in texts) {
            val stream = TextStream(tokenizer)
            val message = listOf(ChatMessage(ChatRole.USER, text))
            for (id in tokenizer.encode(text) + tokenizer.encode(template.pieces(message))) stream.push(id)
            stream.flush()
        }
        for (id in listOf(-1, 0, 5, Int.MAX_VALUE)) tokenizer.tokenBytes(id)
    }
}
