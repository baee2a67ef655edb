package inversespec.edge

import inversespec.edge.text.Json
import org.junit.jupiter.api.Assumptions.assumeTrue
import java.io.File

/** Root of the repository. */
internal val repo = File(System.getProperty("repo") ?: "../..").canonicalFile

internal val shippedBundle = File(repo, "edge_runtime/bundles/tiny-qwen")

internal typealias Row = Map<String, Any?>

/** Results of the Python runtime. Tests that use them are skipped, naming the command, where the file is absent. */
internal val expected: Row by lazy {
    val file = File(System.getProperty("expected") ?: "target/expected.json")
    assumeTrue(file.isFile, "$file is absent: python -m tests.android.make_expectations $file")
    Json.parse(file.readBytes()).row()
}

@Suppress("UNCHECKED_CAST")
internal fun Any?.row(): Row = this as Row

internal fun Any?.rows(): List<Row> = (this as List<*>).map { it.row() }

internal fun Any?.ints(): List<Int> = (this as List<*>).map { (it as Long).toInt() }

internal fun Row.int(name: String): Int = (getValue(name) as Long).toInt()

internal fun Row.text(name: String): String = getValue(name) as String

/** A contract that belongs to no tokenizer. */
internal fun contract(vocabSize: Int = 1000): Contract = Contract(
    vocabSize,
    "a".repeat(64),
    mapOf(Contract.END_OF_TEXT to vocabSize, Contract.IM_START to vocabSize + 1, Contract.IM_END to vocabSize + 2),
    "0".repeat(64),
)
