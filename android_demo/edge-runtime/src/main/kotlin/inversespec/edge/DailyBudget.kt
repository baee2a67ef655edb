package inversespec.edge

import inversespec.edge.text.Json
import inversespec.edge.text.JsonException
import java.io.File
import java.io.IOException

/**
 * What was asked: requests, bytes of questions and payloads both ways, and money.
 */
data class Spent @JvmOverloads constructor(val requests: Long = 0, val bytes: Long = 0, val money: Double = 0.0) {
    operator fun plus(other: Spent) = Spent(requests + other.requests, bytes + other.bytes, money + other.money)
}

/**
 * Most of each in a day, over one link; null for any. Bytes and money are known once they are spent: the answer that
 * reaches a limit is the last one.
 */
data class Limits @JvmOverloads constructor(val requests: Long? = null, val bytes: Long? = null, val money: Double? = null)

/**
 * What may be asked in a day of UTC, counted by link in a file, in the form of the Python runtime's. A clock that goes
 * back does not begin a new day.
 *
 * @property price money of a request.
 * @param days the number of days since 1970.
 */
class DailyBudget @JvmOverloads constructor(
    private val file: File,
    val limits: Limits = Limits(),
    val price: Double = 0.0,
    private val days: () -> Long = { System.currentTimeMillis() / 86_400_000 },
) {
    /** What was spent over a link today. Throws [UsageException] where the file is another one. */
    @Synchronized
    fun spent(link: String): Spent = read().second[link] ?: Spent()

    /**
     * Counts a request that is about to be sent.
     *
     * @throws BudgetSpentException where it may not be, [UsageException] where it cannot be counted.
     */
    @Synchronized
    fun begin(link: String) {
        val spent = spent(link)
        val reached = listOf(
            Triple("requests", limits.requests?.toDouble(), spent.requests.toDouble()),
            Triple("bytes", limits.bytes?.toDouble(), spent.bytes.toDouble()),
            Triple("money", limits.money, spent.money),
        ).firstOrNull { (_, most, now) -> most != null && now >= most }
        if (reached != null) {
            throw BudgetSpentException("$link: today's budget of ${reached.second} ${reached.first} is spent (${reached.third})")
        }
        spend(link, Spent(requests = 1))
    }

    /** Counts what a request has cost. Throws [UsageException] where that cannot be written. */
    @Synchronized
    fun spend(link: String, more: Spent) {
        val (day, links) = read()
        val all = links + (link to (links[link] ?: Spent()) + more)
        val rows = all.entries.joinToString(", ") { (name, it) ->
            "${Json.quote(name)}: [${it.requests}, ${it.bytes}, ${it.money}]"
        }
        try {
            writeWhole(file) { it.write("{\"day\": $day, \"links\": {$rows}}".toByteArray(Charsets.US_ASCII)) }
        } catch (error: IOException) {
            throw UsageException("$file: expected to keep what is spent, found ${error.message}")
        }
    }

    private fun read(): Pair<Long, Map<String, Spent>> {
        val today = days()
        if (!file.exists()) return today to emptyMap()
        try {
            val state = Json.parse(file.readBytes()) as Map<*, *>
            val links = (state["links"] as Map<*, *>).entries.associate { (name, row) ->
                val (requests, bytes, money) = row as List<*>
                name as String to Spent(requests as Long, bytes as Long, (money as Number).toDouble())
            }
            val day = state["day"] as Long
            return if (day >= today) day to links else today to emptyMap()
        } catch (error: IOException) {
            throw unreadable(error)
        } catch (error: JsonException) {
            throw unreadable(error)
        } catch (error: RuntimeException) { // a value of another type
            throw unreadable(error)
        }
    }

    private fun unreadable(error: Exception) =
        UsageException("$file: expected what was spent, found ${error.message}; delete it to begin again")
}
