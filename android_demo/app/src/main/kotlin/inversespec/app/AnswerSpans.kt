package inversespec.app

import android.content.Context
import android.text.SpannableString
import android.text.Spanned
import android.text.style.BackgroundColorSpan
import android.text.style.ForegroundColorSpan
import android.text.style.StrikethroughSpan
import inversespec.edge.FillStats
import inversespec.edge.Source

/**
 * An answer with two text colours, and a tinted background for the cloud's tokens: readable without telling colours
 * apart. Text that was taken back follows, struck through; text of an unknown source has no colour.
 */
fun coloured(context: Context, answer: AnswerText): CharSequence {
    val text = SpannableString(answer.text + answer.takenBack)
    text.setSpan(StrikethroughSpan(), answer.text.length, text.length, Spanned.SPAN_EXCLUSIVE_EXCLUSIVE)
    var start = 0
    for (run in answer.runs) {
        val cloud = run.source == Source.ANCHOR
        if (run.source != Source.PROMPT) {
            val colour = context.getColor(if (cloud) R.color.cloud else R.color.edge)
            text.setSpan(ForegroundColorSpan(colour), start, run.end, Spanned.SPAN_EXCLUSIVE_EXCLUSIVE)
        }
        if (cloud) {
            val tint = BackgroundColorSpan(context.getColor(R.color.cloud_tint))
            text.setSpan(tint, start, run.end, Spanned.SPAN_EXCLUSIVE_EXCLUSIVE)
        }
        start = run.end
    }
    return text
}

/** The words before an answer that the cloud is not sure of, or that the device gave where a cloud was wanted. */
fun lead(context: Context, stats: FillStats): String = when {
    stats.notSure == true -> context.getString(R.string.lead_not_sure)
    stats.service?.run { failure != null && payloadBytes.isEmpty() } == true -> context.getString(R.string.lead_alone)
    else -> ""
}
