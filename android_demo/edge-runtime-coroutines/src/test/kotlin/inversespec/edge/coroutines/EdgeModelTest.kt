package inversespec.edge.coroutines

import inversespec.edge.*
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.async
import kotlinx.coroutines.awaitAll
import kotlinx.coroutines.cancelAndJoin
import kotlinx.coroutines.flow.catch
import kotlinx.coroutines.flow.collect
import kotlinx.coroutines.flow.onEach
import kotlinx.coroutines.flow.produceIn
import kotlinx.coroutines.flow.take
import kotlinx.coroutines.flow.toList
import kotlinx.coroutines.launch
import kotlinx.coroutines.runBlocking
import kotlinx.coroutines.withTimeout
import org.junit.jupiter.api.Assertions.*
import org.junit.jupiter.api.Test
import java.io.File

/** Flows of the shipped model: the tokens of the callback API, cancellation, turns, errors. */
internal class EdgeModelTest {
    private val bundle = File(System.getProperty("repo") ?: "../..", "edge_runtime/bundles/tiny-qwen").canonicalFile
    private val options = RuntimeOptions("fp32", threads = 1)
    private val prompt = "Describe the town of Vell."

    private val wanted: List<Int> by lazy {
        EdgeRuntime.open(bundle, options).use { runtime ->
            ArrayList<Int>().also { ids -> runtime.generate(prompt, 24) { ids.add(it.id) } }
        }
    }

    private fun <T> model(body: suspend (EdgeModel) -> T): T =
        runBlocking { EdgeModel.open(bundle, options).use { withTimeout(120_000) { body(it) } } }

    @Test
    fun `a flow has the tokens of the callbacks and ends in Finished`() = model { model ->
        val events = model.generate(prompt, 24).toList()
        assertEquals(wanted, events.filterIsInstance<Token>().map { it.id })
        assertEquals(wanted.size, (events.last() as Finished).stats.tokens)
        val answer = model.generate(prompt, 24).complete()
        assertEquals(wanted, answer.tokens.map { it.id })
        assertTrue(answer.text.isNotEmpty())
    }

    @Test
    fun `a collector that leaves ends the answer, and the model is free at once`() = model { model ->
        assertEquals(wanted.take(2), model.generate(prompt).take(2).toList().map { (it as Token).id })
        var seen = 0
        lateinit var itself: kotlinx.coroutines.Job
        kotlinx.coroutines.coroutineScope {
            itself = launch {
                model.generate(prompt).onEach { if (++seen == 3) itself.cancel() }.collect()
            }
        }
        assertTrue(itself.isCancelled)
        assertEquals(3, seen)
        val late = kotlinx.coroutines.GlobalScope.launch { model.generate(prompt).collect() }
        late.cancelAndJoin()
        assertEquals(wanted, model.generate(prompt, 24).complete().tokens.map { it.id })
    }

    @Test
    fun `several requests take turns on one model, and one that waits may leave`() = model { model ->
        kotlinx.coroutines.coroutineScope {
            val answers = List(4) { async { model.generate(prompt, 24).complete().tokens.map { it.id } } }
            val impatient = launch { model.generate(prompt).collect() }
            impatient.cancelAndJoin()
            for (ids in answers.awaitAll()) assertEquals(wanted, ids)
        }
    }

    @Test
    fun `a reader that is slow, left, or closes the model holds nobody up`() = model { model ->
        val scope = CoroutineScope(Dispatchers.Default)
        val left = List(70) { model.generate(prompt).produceIn(scope).also { it.receive() } } // never read again
        assertEquals(wanted, model.generate(prompt, 24).complete().tokens.map { it.id })
        model.generate(prompt).onEach { model.close() }.catch { }.collect()
        model.close()
        assertThrows(EngineException::class.java) { runBlocking { model.generate(prompt, 24).complete() } }
        left.forEach { it.cancel() }
    }

    @Test
    fun `errors are those of the callback API, and the model stays usable`() = model { model ->
        assertThrows(TruncatedPayloadException::class.java) {
            runBlocking { model.fill(ByteArray(1), prompt).complete() }
        }
        val nowhere = ServiceClient("http://127.0.0.1:1", timeoutSeconds = 2.0, attempts = 1)
        val events = model.answer(nowhere, prompt, ServiceOptions(stream = true)).toList()
        assertTrue(events.any { it is ServiceFailed && it.alone })
        assertTrue((events.last() as Finished).stats.service!!.failure!!.contains("cannot be reached"))
        assertEquals(wanted, model.generate(prompt, 24).complete().tokens.map { it.id })
    }

    @Test
    fun `turns of a conversation are flows, and of a collector that leaves what was written stays`() = model { model ->
        val session = model.session("Be brief.")
        val events = model.ask(session, prompt, FillOptions(maxTokens = 8)).toList()
        val turn = (events.last() as Finished).turn!!
        assertEquals(turn.tokens, events.filterIsInstance<Token>())
        assertEquals(turn.text, session.messages.last().content)
        val seen = model.ask(session, "And then?").take(2).toList().map { (it as Token).text }
        val said = session.messages.last().content
        assertEquals(5, session.messages.size)
        assertTrue(said.startsWith(seen.joinToString("")))
        val file = File.createTempFile("talk", ".session")
        try {
            model.save(session, file)
            assertEquals(session.messages, model.session(file).messages)
        } finally {
            file.delete()
        }
        assertEquals(wanted, model.generate(prompt, 24).complete().tokens.map { it.id })
    }
}
