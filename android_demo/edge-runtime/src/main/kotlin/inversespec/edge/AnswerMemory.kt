package inversespec.edge

import inversespec.edge.text.Json
import inversespec.edge.text.JsonException
import java.io.File
import java.io.IOException

/**
 * Anchors that were received before, so that the same question is asked once: in a file, under a hash of the contract,
 * the model, the service and the conversation, whose text is not kept. Nothing private is in it.
 *
 * @param age seconds after which an entry is forgotten.
 * @param most bytes of the file; the oldest entries go first.
 * @param seconds since 1970.
 */
class AnswerMemory @JvmOverloads constructor(
    private val file: File,
    private val age: Long,
    private val most: Int = 1 shl 20,
    private val seconds: () -> Long = { System.currentTimeMillis() / 1000 },
) {
    /** The entry of a key; null where there is none that is young enough, whole and of this contract. */
    @Synchronized
    internal fun get(key: String, contract: Contract): Remembered? = try {
        read()[key]?.let { row ->
            val (positions, ids) = row.subList(1, 3).map { list -> (list as List<*>).map { Math.toIntExact(it as Long) } }
            val (canvas, length) = row.subList(3, 5).map { (it as Long?)?.let(Math::toIntExact) }
            Remembered(AnchorSet(positions, ids, canvas!!, contract, length), (row[5] as Number?)?.toDouble())
        }
    } catch (other: AnchorRangeException) {
        null
    } catch (other: RuntimeException) { // a value of another type
        null
    }

    /** Adds an entry; the oldest go where there are too many. Throws [UsageException] where it is not kept. */
    @Synchronized
    internal fun put(key: String, anchors: AnchorSet, doubt: Double?) {
        val row = listOf(seconds(), anchors.positions, anchors.ids, anchors.canvas, anchors.length, doubt)
        val kept = LinkedHashMap((read() - key + (key to row)).mapValues { (name, it) -> "${Json.quote(name)}: $it" })
        while (kept.isNotEmpty() && kept.values.sumOf { it.length + 2 } > most) kept.remove(kept.keys.first())
        try {
            writeWhole(file) { it.write("{${kept.values.joinToString(", ")}}".toByteArray(Charsets.US_ASCII)) }
        } catch (error: IOException) {
            throw UsageException("$file: expected to keep an answer, found ${error.message}")
        }
    }

    /** Entries that are young enough, oldest first; none of a file that is not whole. */
    private fun read(): Map<String, List<*>> = try {
        val now = seconds()
        val found = if (file.length() in 1..most) Json.parse(file.readBytes()) as Map<*, *> else emptyMap<String, Any?>()
        found.entries.associate { (key, row) -> key as String to row as List<*> }
            .filterValues { now - it[0] as Long in 0 until age }
    } catch (other: IOException) {
        emptyMap()
    } catch (other: JsonException) {
        emptyMap()
    } catch (other: RuntimeException) { // a value of another type
        emptyMap()
    }
}

/** What the cloud has sent, and its doubt where that is known. */
internal class Remembered(val anchors: AnchorSet, val doubt: Double?)

/** The name of an entry: a hash of everything that its answer depends on. */
internal fun memoryKey(parts: List<String>): String =
    sha256("[${parts.joinToString(", ", transform = Json::quote)}]".toByteArray()).toHex()
