package inversespec.app

import android.graphics.Typeface
import android.text.SpannableStringBuilder
import android.text.Spanned
import android.text.style.ForegroundColorSpan
import android.text.style.RelativeSizeSpan
import android.text.style.StyleSpan
import android.view.View
import android.view.ViewGroup
import android.widget.AdapterView
import android.widget.ArrayAdapter
import android.widget.Button
import android.widget.CheckBox
import android.widget.EditText
import android.widget.ScrollView
import android.widget.Spinner
import android.widget.TextView
import inversespec.edge.InferenceMode

/** Actions of the Chat screen that require the activity. */
interface ChatActions {
    fun enterService()
}

/** A conversation with its sources in two colours and where it is answered. */
class ChatScreen(parent: ViewGroup, private val viewModel: ChatViewModel, actions: ChatActions) :
    Screen(parent, R.layout.chat) {
    private val mode = find<Spinner>(R.id.chat_mode)
    private val text = find<TextView>(R.id.chat_text)
    private val scroll = find<ScrollView>(R.id.chat_scroll)
    private val question = find<EditText>(R.id.chat_question)
    private val isPrivate = find<CheckBox>(R.id.chat_private)
    private val send = find<Button>(R.id.chat_send)
    private val error = find<TextView>(R.id.chat_error)
    private var draftVersion = 0

    init {
        val labels = listOf(R.string.mode_only_device, R.string.mode_device, R.string.mode_cloud, R.string.mode_only_cloud)
        mode.adapter = ArrayAdapter(context, android.R.layout.simple_spinner_dropdown_item, labels.map(context::getString))
        mode.onItemSelectedListener = object : AdapterView.OnItemSelectedListener {
            override fun onItemSelected(parent: AdapterView<*>?, view: View?, position: Int, id: Long) =
                viewModel.setMode(InferenceMode.entries[position])

            override fun onNothingSelected(parent: AdapterView<*>?) = Unit
        }
        find<View>(R.id.chat_new).setOnClickListener { viewModel.reset() }
        find<View>(R.id.chat_service).setOnClickListener { actions.enterService() }
        send.setOnClickListener {
            if (viewModel.state.value.busy) {
                viewModel.stop()
            } else {
                viewModel.ask(question.text.toString(), isPrivate.isChecked)
                question.setText("")
            }
        }
    }

    override fun observe() = viewModel.state.observe(::show)

    private fun show(state: ChatUiState) {
        if (state.draftVersion != draftVersion) {
            draftVersion = state.draftVersion
            question.setText(state.draft)
        }
        mode.setSelection(state.mode.ordinal)
        mode.isEnabled = !state.busy
        send.setText(if (state.busy) R.string.stop else R.string.chat_send)
        isPrivate.isEnabled = !state.isPrivate
        if (state.isPrivate) isPrivate.isChecked = true
        error.isVisible = state.error != null
        error.text = state.error
        val shown = SpannableStringBuilder()
        for (turn in state.turns) {
            shown.add("${turn.question}\n", StyleSpan(Typeface.BOLD))
            shown.append(turn.lead).append(coloured(context, turn.answer)).append("\n")
            turn.note?.let { shown.add("$it\n", ForegroundColorSpan(context.getColor(R.color.muted)), RelativeSizeSpan(0.8f)) }
            shown.append("\n")
        }
        text.text = shown
        if (state.busy) scroll.post { scroll.fullScroll(View.FOCUS_DOWN) }
    }

    private fun SpannableStringBuilder.add(piece: String, vararg spans: Any) {
        val start = length
        append(piece)
        for (span in spans) setSpan(span, start, length, Spanned.SPAN_EXCLUSIVE_EXCLUSIVE)
    }
}
