package inversespec.edge.decode

import inversespec.edge.expected
import inversespec.edge.rows
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Test

internal class Pcg64Test {
    @Test
    fun `a seed gives NumPy's numbers`() {
        val rows = expected["random"].rows()
        assertEquals(7, rows.size)
        for (row in rows) {
            val random = Pcg64(row["seed"] as Long)
            assertEquals(row["values"], List(5) { random.nextDouble() }) { "${row["seed"]}" }
        }
    }
}
