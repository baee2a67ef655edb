package inversespec.app

import android.view.View
import android.view.ViewGroup
import android.widget.Button
import android.widget.TextView
import java.util.Locale

/** Duration of a pass on this phone against its number of tokens, as a table. */
class BenchScreen(parent: ViewGroup, private val viewModel: BenchViewModel, share: (String) -> Unit) :
    Screen(parent, R.layout.bench) {
    private val run = find<Button>(R.id.bench_run)
    private val send = find<Button>(R.id.bench_share)
    private val errorCard = find<View>(R.id.bench_error_card)
    private val error = find<TextView>(R.id.bench_error)
    private val card = find<View>(R.id.bench_card)
    private val headline = find<TextView>(R.id.bench_headline)
    private val table = find<TextView>(R.id.bench_table)

    init {
        run.setOnClickListener { if (viewModel.state.value.running) viewModel.stop() else viewModel.start() }
        send.setOnClickListener { share(viewModel.report(viewModel.state.value)) }
    }

    override fun observe() = viewModel.state.observe(::show)

    private fun show(state: BenchUiState) {
        run.setText(if (state.running) R.string.stop else R.string.bench_run)
        send.isEnabled = !state.running && state.points.isNotEmpty()
        errorCard.isVisible = state.error != null
        error.text = state.error
        card.isVisible = state.points.isNotEmpty()
        val single = state.points.firstOrNull { it.tokens == 1 }
        headline.text =
            single?.let { String.format(Locale.getDefault(), "%,.0f", it.tokensPerSecond) }
                ?: context.getString(R.string.stat_unknown)
        table.text = context.getString(R.string.bench_header) + "\n" + BenchViewModel.table(state.points)
    }
}
