package inversespec.app

import android.text.Editable
import android.text.TextUtils
import android.text.TextWatcher
import android.view.View
import android.view.ViewGroup
import android.widget.Button
import android.widget.EditText
import android.widget.ScrollView
import android.widget.TextView
import java.util.Locale

/** Actions of the Fill screen that require the activity. */
interface FillActions {
    fun chooseSample()

    fun choosePayload()
}

/** Input of prompt and payload, and the answer with its sources in two colours and its statistics. */
class FillScreen(parent: ViewGroup, private val viewModel: FillViewModel, actions: FillActions) :
    Screen(parent, R.layout.fill) {
    private val prompt = find<EditText>(R.id.prompt)
    private val payloadTitle = find<TextView>(R.id.payload_title)
    private val payloadDetail = find<TextView>(R.id.payload_detail)
    private val payloadClear = find<View>(R.id.payload_clear)
    private val sources = listOf(R.id.samples, R.id.open_file).map { find<Button>(it) }
    private val go = find<Button>(R.id.go)
    private val errorCard = find<View>(R.id.fill_error_card)
    private val error = find<TextView>(R.id.fill_error)
    private val answerCard = find<View>(R.id.answer_card)
    private val status = find<TextView>(R.id.status)
    private val answer = find<TextView>(R.id.answer)
    private val doubt = find<TextView>(R.id.doubt)
    private val statsCard = find<View>(R.id.stats_card)
    private var promptVersion = -1
    private var wasBusy = false

    init {
        prompt.addTextChangedListener(object : TextWatcher {
            override fun beforeTextChanged(text: CharSequence, start: Int, count: Int, after: Int) = Unit

            override fun onTextChanged(text: CharSequence, start: Int, before: Int, count: Int) = Unit

            override fun afterTextChanged(text: Editable) = viewModel.onPromptEdited(text.toString())
        })
        sources[0].setOnClickListener { actions.chooseSample() }
        sources[1].setOnClickListener { actions.choosePayload() }
        payloadClear.setOnClickListener { viewModel.clearPayload() }
        go.setOnClickListener { if (viewModel.state.value.busy) viewModel.stop() else viewModel.start() }
        caption(R.id.stat_bytes, R.string.stat_bytes)
        caption(R.id.stat_cloud, R.string.stat_cloud)
        caption(R.id.stat_edge, R.string.stat_edge)
        caption(R.id.stat_passes, R.string.stat_passes)
        caption(R.id.stat_speed, R.string.stat_speed)
        caption(R.id.stat_agreement, R.string.stat_agreement)
    }

    override fun observe() = viewModel.state.observe(::show)

    private fun show(state: FillUiState) {
        if (state.promptVersion != promptVersion) {
            promptVersion = state.promptVersion
            if (prompt.text.toString() != state.prompt) prompt.setText(state.prompt)
        }
        prompt.isEnabled = !state.busy
        for (button in sources) button.isEnabled = !state.busy
        showPayload(state)
        go.isEnabled = state.phase != Phase.READING
        go.setText(
            when {
                state.busy -> R.string.stop
                state.payload != null -> R.string.go
                else -> R.string.go_alone
            },
        )
        errorCard.isVisible = state.error != null
        error.text = state.error
        answerCard.isVisible = state.busy || state.answer.text.isNotEmpty()
        status.setText(
            when (state.phase) {
                Phase.LOADING -> R.string.status_loading
                Phase.FILLING -> R.string.status_filling
                Phase.STOPPED -> R.string.status_stopped
                else -> R.string.status_done
            },
        )
        answer.text = TextUtils.concat(state.stats?.let { lead(context, it) } ?: "", coloured(context, state.answer))
        doubt.isVisible = state.doubt != null
        doubt.text = state.doubt?.let { context.getString(R.string.doubt, it) }
        showStats(state)
        if (state.busy && !wasBusy) view.post(::showAnswer)
        wasBusy = state.busy
    }

    /** Scrolls to the answer where it would begin in the lower half of the screen. */
    private fun showAnswer() {
        if (answerCard.top > view.height / 2) (view as ScrollView).smoothScrollTo(0, answerCard.top)
    }

    private fun showPayload(state: FillUiState) {
        val payload = state.payload
        payloadClear.isVisible = payload != null && !state.busy
        if (payload == null) {
            val reading = state.phase == Phase.READING
            payloadTitle.setText(if (reading) R.string.payload_reading else R.string.payload_none)
            payloadDetail.setText(R.string.payload_none_detail)
            payloadDetail.isVisible = !reading
            return
        }
        val header = payload.header
        val extras = header.extras
        payloadTitle.text = context.getString(R.string.payload_title, header.size)
        payloadDetail.isVisible = true
        payloadDetail.text = listOfNotNull(
            payload.origin,
            header.codec.label,
            extras.totalSteps.takeIf { it > 0 }?.let { context.getString(R.string.payload_steps, extras.step, it) },
            context.getString(R.string.payload_contract, header.tag),
        ).joinToString(" · ")
    }

    private fun showStats(state: FillUiState) {
        val unknown = context.getString(R.string.stat_unknown)
        statsCard.isVisible = answerCard.isVisible
        number(R.id.stat_bytes, count(state.payload?.bytes?.size ?: 0))
        number(R.id.stat_cloud, count(state.answer.cloudTokens))
        number(R.id.stat_edge, count(state.answer.edgeTokens))
        val stats = state.stats
        number(R.id.stat_passes, stats?.let { count(it.passes) } ?: unknown)
        number(R.id.stat_speed, stats?.let { String.format(Locale.getDefault(), "%.0f", it.tokensPerSecond) } ?: unknown)
        number(R.id.stat_agreement, stats?.agreement?.let { percent(it) } ?: unknown)
    }

    private fun count(number: Int): String = String.format(Locale.getDefault(), "%d", number)

    /** A percentage, with a decimal below 10%: edge-aware payloads consist of tokens that this model finds unlikely. */
    private fun percent(share: Double): String {
        val format = if (share >= 0.1) "%.0f%%" else if (share >= 0.001) "%.1f%%" else "<0.1%%"
        return String.format(Locale.getDefault(), format, 100 * share)
    }

    private fun caption(stat: Int, text: Int) = find<View>(stat).requireView<TextView>(R.id.caption).setText(text)

    private fun number(stat: Int, text: String) {
        find<View>(stat).requireView<TextView>(R.id.number).text = text
    }
}
