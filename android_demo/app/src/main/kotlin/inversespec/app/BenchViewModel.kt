package inversespec.app

import android.content.Context
import android.os.Build
import inversespec.edge.CancelSignal
import inversespec.edge.PassCost
import java.util.Locale
import java.util.concurrent.Executor

/** Measures the selected model on this phone. */
class BenchViewModel(
    private val context: Context,
    private val models: ModelsViewModel,
    private val modelThread: Executor,
) {
    val state = StateHolder(BenchUiState())
    private var cancel = CancelSignal()

    fun start() {
        if (state.value.running) return
        val signal = CancelSignal()
        cancel = signal
        state.update { BenchUiState(running = true) }
        modelThread.execute {
            try {
                val runtime = models.open()
                state.update { it.copy(model = "${runtime.info.id} ${runtime.info.variant}") }
                runtime.bench(cancel = signal) { point -> state.update { it.copy(points = it.points + point) } }
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
        val message = context.errorMessage(error)
        state.update { it.copy(error = message) }
    }

    /** The figures with model and device, as text to share. */
    fun report(state: BenchUiState): String = buildString {
        appendLine("inverse speculation, ${state.model}")
        appendLine("${Build.MANUFACTURER} ${Build.MODEL}, Android ${Build.VERSION.RELEASE}, ${Build.SUPPORTED_ABIS.first()}")
        appendLine("${Runtime.getRuntime().availableProcessors()} cores")
        appendLine(context.getString(R.string.bench_header))
        append(table(state.points))
    }

    companion object {
        /** One line per point, in columns under the header. */
        fun table(points: List<PassCost>): String = points.joinToString("\n") {
            String.format(Locale.ROOT, "%6d %7.2f %9.1f", it.tokens, it.milliseconds, it.tokensPerSecond)
        }
    }
}
