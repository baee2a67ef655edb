package inversespec.edge

import inversespec.edge.text.Json
import org.junit.jupiter.api.Assertions.*
import org.junit.jupiter.api.Test
import java.io.File

class ExtrasTest {
    @Test
    fun `doubt is the one of the Python runtime`() {
        val rows = Json.parse(File(repo, "tests/vectors/doubt.json").readBytes()).rows()
        assertTrue(rows.size > 3)
        for (row in rows) {
            val found = Extras(confidence = row["levels"].ints()).doubt
            val expected = row["doubt"] as Number?
            if (expected == null) assertNull(found) else assertEquals(expected.toDouble(), found!!, 1e-6)
        }
    }
}
