package inversespec.edge.client

import java.io.InputStream
import java.io.OutputStream
import java.net.InetAddress
import java.net.ServerSocket
import java.net.Socket
import java.util.Base64
import java.util.concurrent.CopyOnWriteArrayList
import kotlin.concurrent.thread

/** A server that gives its answers one after the other, the last one again and again. Null closes without a word. */
internal class ScriptedServer(vararg answers: ((OutputStream) -> Unit)?) : AutoCloseable {
    private val answers = ArrayDeque(answers.toList())
    private val listener = ServerSocket(0, 50, InetAddress.getByName("127.0.0.1"))

    /** Head and body of every request. */
    val requests = CopyOnWriteArrayList<String>()
    val url = "http://127.0.0.1:${listener.localPort}"

    init {
        thread(isDaemon = true) {
            while (!listener.isClosed) {
                val socket = try {
                    listener.accept()
                } catch (closed: java.io.IOException) {
                    break
                }
                thread(isDaemon = true) { socket.use(::serve) }
            }
        }
    }

    private fun serve(socket: Socket) {
        try {
            requests.add(request(socket.getInputStream()))
            val answer = synchronized(answers) { if (answers.size > 1) answers.removeFirst() else answers.first() }
            answer?.invoke(socket.getOutputStream())
            socket.getOutputStream().flush()
        } catch (gone: java.io.IOException) {
            // The client has left.
        }
    }

    private fun request(input: InputStream): String {
        val text = StringBuilder()
        while (!text.endsWith("\r\n\r\n")) {
            val byte = input.read()
            if (byte < 0) return text.toString()
            text.append(byte.toChar())
        }
        val size = Regex("(?i)content-length: (\\d+)").find(text)?.groupValues?.get(1)?.toInt() ?: 0
        repeat(size) { text.append(input.read().toChar()) }
        return text.toString()
    }

    override fun close() = listener.close()

    companion object {
        fun bytes(data: ByteArray): (OutputStream) -> Unit = { it.write(data) }

        fun http(
            status: String,
            body: ByteArray,
            type: String = "application/octet-stream",
            vararg more: String,
        ): (OutputStream) -> Unit {
            val head = listOf("HTTP/1.1 $status", "Content-Type: $type", "Content-Length: ${body.size}", *more, "", "")
            return bytes(head.joinToString("\r\n").toByteArray() + body)
        }

        fun refusal(status: String, code: String, vararg more: String): (OutputStream) -> Unit {
            val error = "{\"error\": {\"code\": \"$code\", \"expected\": \"a thing\", " +
                "\"found\": \"another\\u001b[2J\", \"remedy\": \"Do it.\"}}"
            return http(status, error.toByteArray(), "application/json", *more)
        }

        /** Server-sent events: names and data. */
        fun stream(vararg events: Pair<String, String>): (OutputStream) -> Unit {
            val body = events.joinToString("") { (name, data) -> "event: $name\ndata: $data\n\n" }
            return http("200 OK", body.toByteArray(), "text/event-stream; charset=utf-8")
        }

        fun payload(data: ByteArray, delta: Boolean = false): Pair<String, String> =
            "payload" to "{\"payload\": \"${Base64.getEncoder().encodeToString(data)}\", \"delta\": $delta}"
    }
}
