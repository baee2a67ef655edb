package inversespec.edge.bundle

import java.io.File
import java.io.IOException
import java.net.InetAddress
import java.net.ServerSocket
import java.net.Socket
import kotlin.concurrent.thread

/**
 * A static server of one folder that records which bytes it has sent.
 *
 * @param ranges whether it serves ranges. [onSent] is called with the number of bytes sent so far; it may throw
 *   IOException to end a connection. [piece]: the bytes that are sent at once, from now on.
 */
internal class FileServer(
    private val folder: File,
    private val ranges: Boolean = true,
    private val onSent: (Long) -> Unit = {},
) : AutoCloseable {
    @Volatile
    var piece = 8192L
    private val listener = ServerSocket(0, 50, InetAddress.getByName("127.0.0.1"))
    private var sent = 0L
    val url = "http://127.0.0.1:${listener.localPort}/models/tiny"

    /** Name, first and last byte (exclusive) of what was requested and served, in order. */
    val served = ArrayList<Triple<String, Long, Long>>()

    init {
        thread(isDaemon = true) {
            while (!listener.isClosed) {
                val socket = try {
                    listener.accept()
                } catch (closed: IOException) {
                    break
                }
                thread(isDaemon = true) {
                    try {
                        socket.use(::serve)
                    } catch (gone: IOException) {
                        // The client has left.
                    }
                }
            }
        }
    }

    private fun serve(socket: Socket) {
        val input = socket.getInputStream().bufferedReader(Charsets.ISO_8859_1)
        while (true) {
            val lines = generateSequence { input.readLine()?.takeIf { it.isNotEmpty() } }.toList()
            if (lines.isEmpty()) return
            answer(socket, lines)
        }
    }

    private fun answer(socket: Socket, lines: List<String>) {
        val out = socket.getOutputStream()
        val path = lines[0].split(' ')[1].removePrefix("/models/tiny/")
        val file = File(folder, path)
        if (!file.isFile) {
            out.write("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".toByteArray())
            return
        }
        val asked = lines.firstNotNullOfOrNull { Regex("(?i)range: bytes=(\\d+)-(\\d+)").find(it) }
        val start = if (ranges && asked != null) asked.groupValues[1].toLong() else 0
        val last = if (ranges && asked != null) asked.groupValues[2].toLong() else Long.MAX_VALUE - 1
        val end = minOf(last + 1, file.length())
        if (start >= end && file.length() > 0) {
            out.write("HTTP/1.1 416 Range Not Satisfiable\r\nContent-Length: 0\r\n\r\n".toByteArray())
            return
        }
        val status = if (ranges && asked != null) "206 Partial Content" else "200 OK"
        val range = if (ranges && asked != null) "Content-Range: bytes $start-${end - 1}/${file.length()}\r\n" else ""
        out.write("HTTP/1.1 $status\r\nContent-Length: ${end - start}\r\n$range\r\n".toByteArray())
        synchronized(served) { served.add(Triple(path, start, end)) }
        val data = file.readBytes()
        var at = start
        while (at < end) {
            val size = minOf(piece, end - at)
            out.write(data, at.toInt(), size.toInt())
            out.flush()
            val total = synchronized(this) {
                sent += size
                sent
            }
            onSent(total)
            at += size
        }
    }

    override fun close() = listener.close()
}
