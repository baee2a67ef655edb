package inversespec.edge.client

import inversespec.edge.*
import inversespec.edge.client.ScriptedServer.Companion.bytes
import inversespec.edge.client.ScriptedServer.Companion.http
import inversespec.edge.client.ScriptedServer.Companion.payload
import inversespec.edge.client.ScriptedServer.Companion.refusal
import inversespec.edge.client.ScriptedServer.Companion.stream
import org.junit.jupiter.api.Assertions.*
import org.junit.jupiter.api.Test
import java.io.OutputStream
import java.text.SimpleDateFormat
import java.util.Date
import java.util.Locale
import java.util.TimeZone
import java.util.concurrent.CancellationException
import kotlin.concurrent.thread

/** Requests, limits, retries and untrusted responses of the client, against a server that follows a script. */
internal class ServiceClientTest {
    private val slept = ArrayList<Long>()

    private fun client(server: ScriptedServer, key: String? = null, timeout: Double = 10.0, attempts: Int = 4) =
        ServiceClient(server.url, key, timeout, attempts).apply { pause = { slept.add(it) } }

    private fun unavailable(server: ScriptedServer, timeout: Double = 10.0): String = server.use {
        assertThrows(CloudUnavailableException::class.java) { client(it, timeout = timeout, attempts = 1).fetch(ChatMessage.prompt("?")) }
            .message!!
    }

    private fun broken(server: ScriptedServer): String = server.use {
        assertThrows(CloudUnavailableException::class.java) { client(it, attempts = 1).stream(ChatMessage.prompt("?")) {} }.message!!
    }

    @Test
    fun `a payload is asked for with its fields and the key`() {
        ScriptedServer(http("200 OK", byteArrayOf(1, 2))).use { server ->
            val found = client(server, "secret").fetch(ChatMessage.prompt("Wo? \"é\""), "a".repeat(64), 0.1, Codec.COMPACT, 99)
            assertArrayEquals(byteArrayOf(1, 2), found)
            val request = server.requests.single()
            assertTrue(request.startsWith("POST /v1/anchors HTTP/1.1\r\n"), request)
            assertTrue("Authorization: Bearer secret\r\n" in request)
            val body = "{\"prompt\": \"Wo? \\\"\\u00e9\\\"\", \"contract\": \"${"a".repeat(64)}\", " +
                "\"fraction\": 0.1, \"codec\": \"compact\", \"max_bytes\": 99}"
            assertEquals(body, request.substringAfter("\r\n\r\n"))
        }
    }

    @Test
    fun `a path before the service is kept`() {
        ScriptedServer(http("200 OK", byteArrayOf(1))).use { server ->
            ServiceClient(server.url + "/some/where/").fetch(ChatMessage.prompt("?"))
            assertTrue(server.requests.single().startsWith("POST /some/where/v1/anchors "))
        }
    }

    @Test
    fun `temporary failures are tried again with growing pauses`() {
        for (trouble in listOf(refusal("503 X", "overloaded"), null, http("500 X", ByteArray(0)))) {
            slept.clear()
            ScriptedServer(trouble, trouble, http("200 OK", byteArrayOf(7))).use { server ->
                assertArrayEquals(byteArrayOf(7), client(server).fetch(ChatMessage.prompt("?")))
                assertEquals(3, server.requests.size) // the platform sends nothing twice by itself
                assertTrue(slept[0] in 125..250 && slept[1] in 250..500) { "$slept" }
            }
        }
    }

    @Test
    fun `it waits as long as the service asks`() {
        val format = SimpleDateFormat("EEE, dd MMM yyyy HH:mm:ss 'GMT'", Locale.US)
        format.timeZone = TimeZone.getTimeZone("GMT")
        val soon = format.format(Date(System.currentTimeMillis() + 5000))
        ScriptedServer(
            refusal("503 X", "overloaded", "Retry-After: 3"),
            refusal("429 X", "overloaded", "Retry-After: $soon"),
            refusal("503 X", "overloaded", "Retry-After: soon"),
            http("200 OK", byteArrayOf(7)),
        ).use { server ->
            client(server).fetch(ChatMessage.prompt("?"))
            assertTrue(slept[0] in 3000..3750 && slept[1] in 2000..6250 && slept[2] in 500..1000) { "$slept" }
        }
    }

    @Test
    fun `it gives up after some attempts, and at once where waiting would take too long`() {
        ScriptedServer(refusal("503 X", "overloaded")).use { server ->
            val error = assertThrows(CloudUnavailableException::class.java) { client(server).fetch(ChatMessage.prompt("?")) }
            assertTrue("503" in error.message!! && "overloaded: expected a thing" in error.message!!, error.message)
            assertTrue("4 attempts" in error.message!!)
            assertEquals(4, server.requests.size)
        }
        slept.clear()
        ScriptedServer(refusal("503 X", "overloaded", "Retry-After: 3600")).use { server ->
            assertThrows(CloudUnavailableException::class.java) { client(server).fetch(ChatMessage.prompt("?")) }
            assertEquals(0 to 1, slept.size to server.requests.size)
        }
    }

    @Test
    fun `a refusal is not tried again and its words are harmless`() {
        for (status in listOf(400, 404, 409, 413, 422, 301)) {
            ScriptedServer(refusal("$status X", "no", "Location: /elsewhere")).use { server ->
                val error = assertThrows(CloudRefusedException::class.java) { client(server).fetch(ChatMessage.prompt("?")) }
                assertTrue(error.message!!.endsWith("no: expected a thing, found another [2J. Do it."), error.message)
                assertEquals(1, server.requests.size)
            }
        }
        ScriptedServer(refusal("401 X", "unauthorized", "WWW-Authenticate: Bearer")).use { server ->
            val error = assertThrows(CloudRefusedException::class.java) { client(server, "wrong").fetch(ChatMessage.prompt("?")) }
            assertTrue("401" in error.message!!, error.message)
            assertEquals(1, server.requests.size)
        }
    }

    @Test
    fun `what is not in the service's own words counts as not reached`() {
        val login = "<html>Log in</html>".toByteArray()
        val strangers = listOf("302 Found", "511 Network Authentication Required", "403 Forbidden", "404 Not Found")
            .flatMap { status ->
                listOf(
                    http(status, login, "text/html", "Location: http://portal.example"),
                    http(status, "{\"error\": \"denied\"}".toByteArray(), "application/json"),
                    http(status, "{\"error\": {\"code\": \"denied\"}}".toByteArray(), "application/json"),
                    http(status, ByteArray(0)),
                )
            } + http("200 OK", login, "text/html") + http("200 OK", "{}".toByteArray(), "application/json")
        for (answer in strangers) {
            val server = ScriptedServer(answer)
            assertTrue("something else answers there" in unavailable(server))
            assertEquals(1, server.requests.size)
        }
    }

    private fun drip(head: String): (OutputStream) -> Unit = { out ->
        out.write(head.toByteArray())
        repeat(100) {
            out.write('x'.code)
            out.flush()
            Thread.sleep(100)
        }
    }

    @Test
    fun `time is bounded however slowly it answers`() {
        val ok = "HTTP/1.1 200 OK\r\n"
        val slow = listOf(
            drip(ok + "X-Slow: "),
            drip(ok + "Content-Type: application/octet-stream\r\nContent-Length: 100\r\n\r\n"),
            { _: OutputStream -> Thread.sleep(10_000) },
        )
        for (answer in slow) {
            val began = System.nanoTime()
            assertTrue("did not answer in time" in unavailable(ScriptedServer(answer), timeout = 0.8))
            assertTrue(System.nanoTime() - began < 3e9)
        }
    }

    @Test
    fun `a cancelled request ends at once`() {
        ScriptedServer({ Thread.sleep(10_000) }).use { server ->
            val cancel = CancelSignal()
            val began = System.nanoTime()
            val canceller = thread {
                Thread.sleep(200)
                cancel.cancel()
            }
            assertThrows(CancellationException::class.java) { client(server).fetch(ChatMessage.prompt("?"), cancel = cancel) }
            assertThrows(CancellationException::class.java) { client(server).stream(ChatMessage.prompt("?"), cancel = cancel) {} }
            assertTrue(System.nanoTime() - began < 3e9)
            canceller.join()
        }
    }

    @Test
    fun `responses of another form are refused`() {
        val endless: (OutputStream) -> Unit = { out ->
            out.write("HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n".toByteArray())
            out.write("Transfer-Encoding: chunked\r\n\r\n".toByteArray())
            while (true) out.write("10000\r\n".toByteArray() + ByteArray(65536) + "\r\n".toByteArray())
        }
        assertTrue("at most ${Payloads.MAX_BYTES} bytes" in unavailable(ScriptedServer(endless)))
        val portal = http("200 OK", "<html>Log in</html>".toByteArray(), "text/html")
        assertTrue("something else answers" in unavailable(ScriptedServer(portal)))
        val type = "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n"
        val early = "before its answer was complete"
        assertTrue(early in unavailable(ScriptedServer(bytes("${type}Content-Length: 9\r\n\r\nabc".toByteArray()))))
        assertTrue(early in unavailable(ScriptedServer(bytes("$type\r\nabc".toByteArray()))))
        assertTrue("its language" in unavailable(ScriptedServer(bytes("SSH-2.0-OpenSSH_9.2\r\n".toByteArray()))))
    }

    @Test
    fun `streams of another form are refused`() {
        val head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
        val endlessLine: (OutputStream) -> Unit = { out ->
            out.write((head + "data: ").toByteArray())
            while (true) out.write(ByteArray(65536) { 'A'.code.toByte() })
        }
        assertTrue("lines of at most" in broken(ScriptedServer(endlessLine)))
        val endless: (OutputStream) -> Unit = { out ->
            out.write(head.toByteArray())
            while (true) out.write("event: payload\ndata: {\"payload\": \"AAAA\", \"delta\": false}\n\n".toByteArray())
        }
        assertTrue("found another stream" in broken(ScriptedServer(endless)))
        for (data in listOf("{\"payload\": \"%%%\", \"delta\": false}", "{\"delta\": false}", "[]", "{")) {
            assertTrue("its language" in broken(ScriptedServer(stream("payload" to data))), data)
        }
        assertTrue("found another stream" in broken(ScriptedServer(stream("message" to "{}"))))
        assertTrue("ended before it was done" in broken(ScriptedServer(stream(payload(byteArrayOf(1))))))
        val late = "{\"code\": \"deadline_exceeded\", \"expected\": \"a\", \"found\": \"b\"}"
        assertTrue("deadline_exceeded" in broken(ScriptedServer(stream("error" to late))))
    }

    @Test
    fun `payloads of a stream arrive in order, and those before a break stay`() {
        val seen = ArrayList<Pair<Int, Boolean>>()
        ScriptedServer(stream(payload(byteArrayOf(5)), payload(byteArrayOf(6), true), "done" to "{}")).use { server ->
            client(server).stream(ChatMessage.prompt("?"), fractions = listOf(0.1, 0.25)) { seen.add(it.data[0].toInt() to it.delta) }
            assertTrue("\"fractions\": [0.1, 0.25]" in server.requests.single())
        }
        assertEquals(listOf(5 to false, 6 to true), seen)
        seen.clear()
        ScriptedServer(stream(payload(byteArrayOf(5)))).use { server ->
            assertThrows(CloudUnavailableException::class.java) { client(server).stream(ChatMessage.prompt("?")) { seen.add(1 to false) } }
            assertEquals(1 to 1, seen.size to server.requests.size)
        }
    }

    @Test
    fun `only encrypted addresses, or this device`() {
        val wrong = listOf("localhost:8080", "ftp://host", "http://", "https://u@host", "https://h?a=b", "https://h h")
        for (url in wrong) {
            assertThrows(UsageException::class.java) { ServiceClient(url) }
        }
        for (url in listOf("http://example.com", "http://10.0.2.2:8080", "http://127.example.com")) {
            val error = assertThrows(UsageException::class.java) { ServiceClient(url) }
            assertTrue("expected https" in error.message!!)
        }
        for (url in listOf("https://example.com/a", "http://localhost:1", "http://127.0.0.1:1", "http://[::1]:1")) {
            ServiceClient(url)
        }
        assertThrows(UsageException::class.java) { ServiceClient("https://h", "a\r\nX: y") }
        assertThrows(UsageException::class.java) { ServiceClient("https://h", timeoutSeconds = 0.0) }
        assertFalse(ServiceClient.isAllowed(java.net.URI("http:opaque"), local = true))
    }

    @Test
    fun `plain http in the local network has to be asked for, and never carries a key`() {
        val near = listOf("10.0.2.2:8080", "192.168.1.5", "172.16.0.1", "172.31.9.9", "169.254.3.3", "desk.local")
        for (host in near) {
            assertThrows(UsageException::class.java) { ServiceClient("http://$host") }
            assertEquals("http://$host", ServiceClient("http://$host", localCleartext = true).url)
            val error = assertThrows(UsageException::class.java) {
                ServiceClient("http://$host", "secret", localCleartext = true)
            }
            assertTrue("expected https for a key" in error.message!!)
        }
        for (host in listOf("example.com", "8.8.8.8", "172.32.0.1", "192.169.0.1", "10.example.com", "1.10.0.0", "a.local.com")) {
            assertThrows(UsageException::class.java, { ServiceClient("http://$host", localCleartext = true) }, host)
        }
        ServiceClient("http://localhost:1", "secret") // this device
        ServiceClient("https://10.0.2.2", "secret")
    }
}
