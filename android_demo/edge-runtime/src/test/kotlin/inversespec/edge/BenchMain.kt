package inversespec.edge

import java.io.File

/**
 * The Kotlin process of android_demo/bench.py, which alternates between both runtimes.
 *
 * Arguments: bundle folder, variant, threads. Each line of standard input is a payload in hex that carries its prompt;
 * each line of standard output is the duration of its fill in milliseconds and the token ids.
 */
fun main(args: Array<String>) {
    val (bundle, variant, threads) = args
    EdgeRuntime.open(File(bundle), RuntimeOptions(variant, threads.toInt())).use { runtime ->
        println("ready ${runtime.info.variant}")
        for (line in generateSequence(::readLine)) {
            val ids = ArrayList<Int>()
            val text = StringBuilder()
            val before = System.nanoTime()
            runtime.fill(line.trim().hexToBytes(), null) { token ->
                ids.add(token.id)
                text.append(token.text)
            }
            println("${(System.nanoTime() - before) / 1e6} ${ids.joinToString(",")}")
        }
    }
}
