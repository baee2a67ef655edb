package inversespec.edge.payload.codecs

/**
 * Sums of a list of numbers >= 0 that grows and changes, each in steps of the logarithm of its size.
 *
 * Node n of the tree holds the sum of the (n and -n) numbers that end before index n.
 */
internal class FenwickTree {
    private var numbers = LongArray(64)
    private var nodes = LongArray(65)
    private var size = 0

    var total = 0L
        private set

    operator fun get(index: Int): Long = numbers[index]

    /** Adds a number at the end. */
    fun add(number: Long) {
        if (size == numbers.size) {
            numbers = numbers.copyOf(2 * size)
            nodes = nodes.copyOf(2 * size + 1)
        }
        numbers[size] = number
        total += number
        val node = ++size
        var sum = number
        var step = 1
        while (node and step == 0) {
            sum += nodes[node - step]
            step = step shl 1
        }
        nodes[node] = sum
    }

    operator fun set(index: Int, number: Long) {
        val change = number - numbers[index]
        numbers[index] = number
        total += change
        var node = index + 1
        while (node <= size) {
            nodes[node] += change
            node += node and -node
        }
    }

    /** The sum of the numbers before an index. */
    fun before(index: Int): Long {
        var sum = 0L
        var node = index
        while (node > 0) {
            sum += nodes[node]
            node = node and node - 1
        }
        return sum
    }

    /** The index whose number holds a [target] below the total: before(i) <= target < before(i + 1). */
    fun find(target: Long): Int {
        var index = 0
        var left = target
        var step = Integer.highestOneBit(size)
        while (step > 0) {
            if (index + step <= size && nodes[index + step] <= left) {
                index += step
                left -= nodes[index]
            }
            step = step shr 1
        }
        return index
    }
}
