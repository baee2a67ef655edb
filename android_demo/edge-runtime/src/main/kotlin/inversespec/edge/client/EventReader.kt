package inversespec.edge.client

import inversespec.edge.CloudUnavailableException
import inversespec.edge.Payloads
import java.io.ByteArrayOutputStream

/** Server-sent events of a response, one after the other, in bounded memory. */
internal class EventReader(private val response: Response) {
    private val buffer = ByteArray(1 shl 13)
    private var at = 0
    private var size = 0

    /** Calls [onEvent] with the name and the data of each event, until it returns false or the stream ends. */
    fun read(onEvent: (name: String, data: ByteArray) -> Boolean) {
        var name = DEFAULT
        var data: ByteArray? = null
        while (true) {
            val line = line() ?: return
            val colon = line.indexOf(':'.code.toByte())
            val text = String(line, Charsets.ISO_8859_1)
            val value = if (colon < 0) "" else text.substring(colon + 1)
            when (if (colon < 0) text else text.substring(0, colon)) {
                "" -> if (colon < 0) {
                    val complete = data
                    if (complete != null && complete.isNotEmpty() && !onEvent(name, complete)) return
                    name = DEFAULT
                    data = null
                }
                "event" -> name = value.trim()
                "data" -> data = value.trim().toByteArray(Charsets.ISO_8859_1)
            }
        }
    }

    /** The next line without its end; null at the end of the stream. */
    private fun line(): ByteArray? {
        val out = ByteArrayOutputStream()
        while (true) {
            if (at == size) {
                size = response.read(buffer)
                at = 0
                if (size < 0) {
                    size = 0
                    return null // a line without an end belongs to no event
                }
                continue
            }
            val byte = buffer[at++]
            if (byte == '\n'.code.toByte()) {
                val line = out.toByteArray()
                return if (line.lastOrNull() == '\r'.code.toByte()) line.copyOf(line.size - 1) else line
            }
            out.write(byte.toInt())
            if (out.size() > MAX_LINE_BYTES) {
                throw CloudUnavailableException("expected lines of at most $MAX_LINE_BYTES bytes, found more")
            }
        }
    }

    private companion object {
        const val DEFAULT = "message"

        /** A payload in base64 and the JSON around it. */
        const val MAX_LINE_BYTES = Payloads.MAX_BYTES * 4 / 3 + 4096
    }
}
