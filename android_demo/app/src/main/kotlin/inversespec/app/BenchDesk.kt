package inversespec.app

import android.content.Context
import android.os.Build
import inversespec.edge.Cancel
import inversespec.edge.ChunkCost
import java.util.Locale
import java.util.concurrent.Executor

/** All that the Benchmark screen shows; [model] is the one the points were measured on. */
data class BenchState(
    val running: Boolean = false,
    val model: String = "",
    val points: List<ChunkCost> = emptyList(),
    val error: String? = null,
)

/** Measures the model in use on this phone. */
class BenchDesk(private val context: Context, private val models: ModelsDesk, private val modelThread: Executor) {
    val state = Live(BenchState())
    private var cancel = Cancel()

    fun start() {
        if (state.value.running) return
        val mine = Cancel()
        cancel = mine
        state.update { BenchState(running = true) }
        modelThread.execute {
            try {
                val model = models.open()
                state.update { it.copy(model = "${model.info.id} ${model.info.variant}") }
                model.bench(cancel = mine) { point -> state.update { it.copy(points = it.points + point) } }
            } catch (error: Exception) {
                fail(error)
            } catch (error: OutOfMemoryError) {
                fail(error)
            }
            state.update { it.copy(running = false) }
        }
    }

    fun stop() = cancel.cancel()

    private fun fail(error: Throwable) {
        val words = context.explain(error)
        state.update { it.copy(error = words) }
    }

    /** The figures with what they were measured on, as text to send to someone. */
    fun report(state: BenchState): String = buildString {
        appendLine("inverse speculation, ${state.model}")
        appendLine("${Build.MANUFACTURER} ${Build.MODEL}, Android ${Build.VERSION.RELEASE}, ${Build.SUPPORTED_ABIS.first()}")
        appendLine("${Runtime.getRuntime().availableProcessors()} cores")
        appendLine(context.getString(R.string.bench_header))
        append(table(state.points))
    }

    companion object {
        /** A line a point, in columns under the header. */
        fun table(points: List<ChunkCost>): String = points.joinToString("\n") {
            String.format(Locale.ROOT, "%6d %7.2f %9.1f", it.tokens, it.milliseconds, it.tokensPerSecond)
        }
    }
}
