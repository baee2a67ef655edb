package inversespec.edge

import inversespec.edge.text.Json
import org.junit.jupiter.api.Assertions.*
import org.junit.jupiter.api.Test
import java.io.File

internal class FormTest {
    private val vectors = Json.parse(File(repo, "tests/vectors/decision_vectors.json").readBytes()).row()
    private val forms = vectors["forms"].rows().map { Form.of(it.text("schema")) }

    @Test
    fun `forms have the identity and the values of Python's`() {
        for ((row, form) in vectors["forms"].rows().zip(forms)) {
            assertEquals(row.text("identity"), form.identity)
            assertEquals(row["value_of_last"], form.value(form.slots.map { it.options.size - 1 }))
        }
    }

    @Test
    fun `decisions are read as Python reads them`() {
        for (row in vectors["decisions"].rows()) {
            val found = forms[row.int("form")].read(row.text("data").hexToBytes(), row.text("text"))
            val expected = row["probabilities"].row()
            assertEquals(expected.keys, found.keys.map(Int::toString).toSet())
            for ((at, read) in found) {
                val wanted = (expected.getValue(at.toString()) as List<*>).map { (it as Number).toDouble() }
                assertArrayEquals(wanted.toDoubleArray(), read, 1e-9)
            }
        }
    }

    @Test
    fun `broken decisions and what is no form are refused`() {
        for (row in vectors["broken"].rows()) {
            val form = forms[row.int("form")]
            val error = assertThrows(PayloadException::class.java) {
                form.read(row.text("data").hexToBytes(), row.text("text"))
            }
            assertTrue(error.javaClass.simpleName.startsWith(row.text("error"), ignoreCase = true))
        }
        for (schema in (vectors["refused"] as List<*>).map { it as String }.filter { "minLength" !in it }) {
            assertThrows(UsageException::class.java) { Form.of(schema) }
        }
    }
}
