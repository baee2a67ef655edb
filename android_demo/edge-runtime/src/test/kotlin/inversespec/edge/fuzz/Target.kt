package inversespec.edge.fuzz

/** One thing that reads what strangers send. Whatever else than an EdgeException it throws is a finding. */
internal fun interface Target {
    fun run(data: ByteArray)
}

/** By their names in `tests/fuzz/targets`: both languages read the same inputs in the same way. */
internal fun target(name: String): Target = when (name) {
    "payload", "payload_long" -> PayloadTarget()
    "manifest" -> ManifestTarget
    "tokenizer" -> TokenizerTarget
    "service_answer" -> ServiceAnswerTarget
    else -> throw IllegalArgumentException("expected a target, found $name")
}

internal val TARGETS = listOf("payload", "manifest", "tokenizer", "service_answer")
