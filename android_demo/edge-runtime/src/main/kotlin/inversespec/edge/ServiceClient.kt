package inversespec.edge

import inversespec.edge.client.*
import inversespec.edge.text.Json
import java.net.URI
import java.net.URISyntaxException
import java.util.Base64
import java.util.concurrent.CancellationException

/** Bytes of one payload; [delta] where it adds to the payload before it. */
class ReceivedPayload(val data: ByteArray, val delta: Boolean)

/**
 * Client of an anchor service: `POST /v1/anchors` and `/v1/anchors/stream`.
 *
 * ```kotlin
 * val client = ServiceClient("https://anchors.example.com", key)
 * val stats = runtime.answer(client, prompt, ServiceOptions(stream = true)) { event -> ... }
 * ```
 *
 * The connection is encrypted, unless the service is on this very device (localhost, 127.0.0.1, [::1]); redirects are
 * not followed. Sizes and times of responses are bounded, and a response of another form is an error. Its calls block:
 * use a background thread. They throw [CloudRefusedException] where the service refuses the request,
 * [CloudUnavailableException] where it cannot be reached or does not answer in time, and
 * java.util.concurrent.CancellationException where cancelled.
 *
 * @property url `https://host` or `https://host:port`, with the path before /v1 where there is one.
 * @property key sent as `Authorization: Bearer`; null for none.
 * @property timeoutSeconds from the first attempt to the last byte.
 * @property attempts maximum number of attempts of one request.
 * @property localCleartext for development: plain http also to the emulator's host (10.0.2.2) and the local network
 *   (private addresses, names in .local), but never with a key. The app's network security configuration has to permit
 *   it as well.
 * @throws UsageException for an invalid address or key.
 */
class ServiceClient @JvmOverloads constructor(
    val url: String,
    val key: String? = null,
    val timeoutSeconds: Double = 15.0,
    val attempts: Int = 4,
    val localCleartext: Boolean = false,
) {
    /** In tests: replaces the pauses between attempts, in milliseconds. */
    internal var pause: ((Long) -> Unit)? = null

    init {
        checkAddress(url, localCleartext)
        if (key != null && (key.isEmpty() || key.any { it !in '!'..'~' })) {
            throw UsageException("key: expected printable ASCII characters without spaces, found others")
        }
        if (key != null && !isAllowed(URI(url), false)) {
            throw UsageException(
                "url: expected https for a key that goes to another host, found ${url.take(100)}: it would cross the " +
                    "network unencrypted",
            )
        }
        if (!(timeoutSeconds > 0 && timeoutSeconds <= 3600)) {
            throw UsageException("timeout: expected above 0 and at most 3600 seconds, found $timeoutSeconds")
        }
        if (attempts < 1) throw UsageException("attempts: expected 1 or more, found $attempts")
    }

    /**
     * Returns the bytes of one payload for a conversation, up to its answer.
     *
     * @param contract identity of the device's contract: the service refuses another one.
     * @param fraction share of the planned denoising steps; null is the service's own choice.
     * @param codec see [ServiceOptions.codec]; a predictive payload is decoded with the model ([EdgeRuntime.fill]).
     * @param maxBytes most bytes of the payload.
     */
    @JvmOverloads
    fun fetch(
        messages: List<ChatMessage>,
        contract: String? = null,
        fraction: Double? = null,
        codec: Codec? = null,
        maxBytes: Int? = null,
        cancel: CancelSignal = CancelSignal(),
    ): ByteArray {
        val fields = listOf(
            "contract" to contract,
            "fraction" to fraction,
            "codec" to codec?.label,
            "max_bytes" to maxBytes,
        )
        openFeed(messages, fields, stream = false).use { feed ->
            return (feed.next(cancel) ?: throw CancellationException("cancelled")).data
        }
    }

    /**
     * Calls [onPayload] with the payloads as the service makes them. A stream that breaks is not started again: the
     * payloads so far stay valid.
     *
     * @param fractions shares of the planned denoising steps; empty is the service's own choice.
     */
    @JvmOverloads
    fun stream(
        messages: List<ChatMessage>,
        contract: String? = null,
        fractions: List<Double> = emptyList(),
        codec: Codec? = null,
        cancel: CancelSignal = CancelSignal(),
        onPayload: (ReceivedPayload) -> Unit,
    ) {
        val fields = listOf(
            "contract" to contract,
            "fractions" to fractions.ifEmpty { null },
            "codec" to codec?.label,
        )
        openFeed(messages, fields, stream = true).use { feed ->
            while (true) onPayload(feed.next(cancel) ?: break)
        }
        if (cancel.isCancelled) throw CancellationException("cancelled")
    }

    /** Sends a request in a thread of its own, as [ServiceOptions] say. */
    internal fun open(messages: List<ChatMessage>, contract: String, options: ServiceOptions, codec: Codec?): PayloadFeed {
        val share = if (options.stream) {
            "fractions" to options.fractions.ifEmpty { null }
        } else {
            "fraction" to options.fractions.firstOrNull()
        }
        val fields = listOf(
            "contract" to contract,
            share,
            "codec" to codec?.label,
            "confidence" to options.confidence,
        )
        return openFeed(messages, fields, options.stream)
    }

    private fun openFeed(messages: List<ChatMessage>, fields: List<Pair<String, Any?>>, stream: Boolean): PayloadFeed {
        val question = messages.singleOrNull()?.takeIf { it.role == ChatRole.USER }?.content
        val asked = if (question != null) "prompt" to question else "messages" to messages.map(::fieldsOf)
        val body = json(mapOf(asked) + fields.filter { it.second != null }).toByteArray(Charsets.US_ASCII)
        val end = System.nanoTime() + (timeoutSeconds * 1e9).toLong()
        val leaving = Leaving()
        val request = HttpRequest(url, key, attempts, end, leaving, pause ?: leaving::pause)
        return PayloadFeed(url, end, leaving, body.size) { feed ->
            if (stream) {
                request.send("/v1/anchors/stream", body, HttpRequest.EVENTS) { receive(it, feed) }
            } else {
                val data = request.send("/v1/anchors", body, HttpRequest.BINARY) { it.readAtMost(Payloads.MAX_BYTES) }
                feed.put(ReceivedPayload(data, delta = false))
            }
        }
    }

    /** Puts the payloads of a stream into the feed. What breaks after the first one is not asked for again. */
    private fun receive(response: Response, feed: PayloadFeed) {
        var count = 0
        var done = false
        try {
            EventReader(response).read { name, data ->
                when {
                    name == "done" -> done = true
                    name == "error" -> throw CloudUnavailableException(
                        Response.serviceError(Response.jsonObject(data)) ?: Response.ANOTHER_LANGUAGE,
                    )
                    name != "payload" || count++ >= MAX_EVENTS ->
                        throw CloudUnavailableException("expected payloads, found another stream")
                    else -> feed.put(receivedPayload(data))
                }
                !done
            }
        } catch (error: java.io.IOException) {
            throw CloudUnavailableException(Response.failure(error))
        }
        if (!done) throw CloudUnavailableException("the stream ended before it was done")
    }

    private fun receivedPayload(data: ByteArray): ReceivedPayload {
        val fields = Response.jsonObject(data)
        val text = fields["payload"] as? String
        val delta = fields["delta"] as? Boolean
        val payload = try {
            text?.let { Base64.getDecoder().decode(it) }
        } catch (error: IllegalArgumentException) {
            null
        }
        if (payload == null || delta == null || payload.size > Payloads.MAX_BYTES) {
            throw CloudUnavailableException(Response.ANOTHER_LANGUAGE)
        }
        return ReceivedPayload(payload, delta)
    }

    companion object {
        private const val MAX_EVENTS = 64
        private val LOOPBACK = Regex("localhost|127(\\.\\d{1,3}){3}|\\[::1]", RegexOption.IGNORE_CASE)

        private val LOCAL_NETWORK = Regex(
            "10(\\.\\d{1,3}){3}|(192\\.168|169\\.254|172\\.(1[6-9]|2\\d|3[01]))(\\.\\d{1,3}){2}|[^.]+\\.local",
            RegexOption.IGNORE_CASE,
        )

        /** True for an address that this library connects to: HTTPS, this very device, or [local], the network it is in. */
        internal fun isAllowed(uri: URI, local: Boolean): Boolean {
            val host = uri.host.orEmpty()
            return uri.scheme.equals("https", ignoreCase = true) || uri.scheme.equals("http", ignoreCase = true) &&
                (LOOPBACK.matches(host) || local && LOCAL_NETWORK.matches(host))
        }

        private fun checkAddress(url: String, local: Boolean) {
            val uri = try {
                URI(url)
            } catch (error: URISyntaxException) {
                null
            }
            val complete = uri?.host != null && uri.userInfo == null && uri.query == null && uri.fragment == null
            if (uri == null || !complete || uri.scheme.lowercase() !in listOf("http", "https")) {
                throw UsageException(
                    "url: expected https://host or https://host:port without a user name, found ${url.take(100)}",
                )
            }
            if (!isAllowed(uri, local)) {
                throw UsageException(
                    "url: expected https, found http to ${uri.host}: prompt and key would cross the network " +
                        "unencrypted. Plain http is for a service on this device only (localhost).",
                )
            }
        }

        private fun fieldsOf(message: ChatMessage) =
            mapOf("role" to message.role.label, "content" to message.content)

        private fun json(value: Any?): String = when (value) {
            is Map<*, *> -> value.entries.joinToString(", ", "{", "}") { (name, each) -> "${json(name)}: ${json(each)}" }
            is List<*> -> value.joinToString(", ", "[", "]", transform = ::json)
            is Number, is Boolean -> value.toString()
            else -> Json.quote(value.toString())
        }
    }
}
