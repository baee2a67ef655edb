package inversespec.edge

import inversespec.edge.payload.hexToBytes
import java.io.File

/**
 * The Kotlin side of `python -m tests.android.bench`, which starts it, so that both runtimes are timed in turns.
 *
 * Arguments: bundle folder, variant, threads. Each line on standard input is a payload in hex, which carries its
 * prompt; each line on standard output is the milliseconds its fill took and the ids it gave.
 */
fun main(args: Array<String>) {
    val (bundle, variant, threads) = args
    EdgeModel.open(File(bundle), Options(variant, threads.toInt())).use { model ->
        println("ready ${model.info.variant}")
        for (line in generateSequence(::readLine)) {
            val ids = ArrayList<Int>()
            val text = StringBuilder()
            val before = System.nanoTime()
            model.fill(line.trim().hexToBytes(), null) { token ->
                ids.add(token.id)
                text.append(token.text)
            }
            println("${(System.nanoTime() - before) / 1e6} ${ids.joinToString(",")}")
        }
    }
}
