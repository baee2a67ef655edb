package inversespec.edge.fuzz

import inversespec.edge.ChatMessage
import inversespec.edge.ServiceClient
import java.io.ByteArrayInputStream
import java.io.ByteArrayOutputStream
import java.io.FileNotFoundException
import java.io.IOException
import java.io.InputStream
import java.io.OutputStream
import java.net.HttpURLConnection
import java.net.URL
import java.net.URLConnection
import java.net.URLStreamHandler

/**
 * What a hostile service answers; `service_answer.py` says what the first byte means. The head is read here: on a phone
 * another library than the JVM's reads it.
 */
internal object ServiceAnswerTarget : Target {
    private var answer = ByteArray(0)

    init {
        URL.setURLStreamHandlerFactory { protocol ->
            if (protocol != "http") return@setURLStreamHandlerFactory null
            object : URLStreamHandler() {
                override fun openConnection(url: URL): URLConnection = Scripted(url, answer)
            }
        }
    }

    private class Scripted(url: URL, data: ByteArray) : HttpURLConnection(url) {
        private val text = String(data, Charsets.ISO_8859_1)
        private val head = text.substringBefore("\r\n\r\n").split("\r\n")
        private val body = ByteArrayInputStream(text.substringAfter("\r\n\r\n", "").toByteArray(Charsets.ISO_8859_1))
        private val status = head[0].split(' ')

        override fun getResponseCode(): Int = status.getOrNull(1)?.toIntOrNull() ?: -1

        override fun getResponseMessage(): String? = status.getOrNull(2)

        override fun getHeaderField(name: String): String? = head.drop(1)
            .firstOrNull { it.substringBefore(':').equals(name, ignoreCase = true) }?.substringAfter(':', "")?.trim()

        override fun getInputStream(): InputStream =
            if (responseCode in 0..399) body else throw FileNotFoundException("an error")

        override fun getErrorStream(): InputStream? = body.takeIf { responseCode >= 400 && it.available() > 0 }

        override fun getOutputStream(): OutputStream = ByteArrayOutputStream()

        override fun connect() {
            if (text.isEmpty()) throw IOException("no answer")
        }

        override fun disconnect() = Unit

        override fun usingProxy() = false
    }

    override fun run(data: ByteArray) {
        if (data.isEmpty() || data[0].toInt() and 1 != 0) return // what a service states of itself is not asked for
        val how = data[0].toInt()
        var bytes = data.copyOfRange(1, data.size)
        if (how and 4 != 0) {
            val kind = if (how and 2 != 0) "text/event-stream" else "application/octet-stream"
            val failed = how and 8 != 0
            val head = "HTTP/1.1 ${if (failed) "503 Busy" else "200 OK"}\r\nContent-Type: " +
                "${if (failed) "application/json" else kind}\r\nContent-Length: ${bytes.size}\r\n"
            bytes = (head + if (how and 16 != 0) "" else "\r\n").toByteArray() + bytes
        }
        answer = bytes
        val client = ServiceClient("http://localhost", timeoutSeconds = 5.0, attempts = 2)
        client.pause = { }
        if (how and 2 != 0) client.stream(ChatMessage.prompt("a")) { } else client.fetch(ChatMessage.prompt("a"))
    }
}
