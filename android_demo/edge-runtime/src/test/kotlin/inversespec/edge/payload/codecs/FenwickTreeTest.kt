package inversespec.edge.payload.codecs

import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Test
import java.util.Random

internal class FenwickTreeTest {
    @Test
    fun `sums are those of the list`() {
        val random = Random(1)
        val numbers = ArrayList<Long>()
        val tree = FenwickTree()
        repeat(300) {
            val number = random.nextInt(1 shl 24).toLong() + 1
            numbers.add(number)
            tree.add(number)
            val changed = random.nextInt(numbers.size)
            numbers[changed] += number
            tree[changed] = numbers[changed]
        }
        var sum = 0L
        for ((index, number) in numbers.withIndex()) {
            assertEquals(number, tree[index])
            assertEquals(sum, tree.before(index))
            assertEquals(index, tree.find(sum))
            sum += number
            assertEquals(index, tree.find(sum - 1))
        }
        assertEquals(sum, tree.total)
    }
}
