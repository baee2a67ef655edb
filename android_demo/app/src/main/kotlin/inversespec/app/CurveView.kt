package inversespec.app

import android.content.Context
import android.graphics.Canvas
import android.graphics.Paint
import android.graphics.Path
import android.util.AttributeSet
import android.util.TypedValue
import android.view.View
import inversespec.edge.PassCost
import java.util.Locale
import kotlin.math.ceil
import kotlin.math.floor
import kotlin.math.log10
import kotlin.math.pow

/** A chart of milliseconds per pass against the number of tokens in the pass, which doubles from point to point. */
class CurveView(context: Context, attributes: AttributeSet?) : View(context, attributes) {
    private val line = paint(R.color.primary).apply {
        style = Paint.Style.STROKE
        strokeWidth = dp(2.5f)
        strokeJoin = Paint.Join.ROUND
    }
    private val dot = paint(R.color.primary)
    private val grid = paint(R.color.outline).apply { strokeWidth = dp(1f) }
    private val label = paint(R.color.muted).apply {
        textSize = TypedValue.applyDimension(TypedValue.COMPLEX_UNIT_SP, 11f, resources.displayMetrics)
    }
    private val path = Path()

    var points: List<PassCost> = emptyList()
        set(value) {
            if (field == value) return
            field = value
            contentDescription = context.getString(
                R.string.bench_curve,
                value.joinToString { it.tokens.toString() },
                value.joinToString { String.format(Locale.getDefault(), "%.2f", it.milliseconds) },
            )
            invalidate()
        }

    override fun onDraw(canvas: Canvas) {
        super.onDraw(canvas)
        if (points.isEmpty()) return
        val left = dp(44f)
        val right = width - dp(12f)
        val top = dp(24f)
        val bottom = height - dp(24f)
        val step = roundUp(points.maxOf { it.milliseconds } / 4)
        val most = step * ceil(points.maxOf { it.milliseconds } / step)
        fun x(at: Int) = left + (right - left) * at / maxOf(points.size - 1, 1)
        fun y(ms: Double) = (bottom - (bottom - top) * ms / most).toFloat()

        label.textAlign = Paint.Align.LEFT
        canvas.drawText(context.getString(R.string.bench_axis), dp(4f), dp(12f), label)
        label.textAlign = Paint.Align.RIGHT
        var mark = 0.0
        while (mark <= most * 1.001) {
            canvas.drawLine(left, y(mark), right, y(mark), grid)
            canvas.drawText(short(mark, step), left - dp(8f), y(mark) + label.textSize / 3, label)
            mark += step
        }
        label.textAlign = Paint.Align.CENTER
        path.reset()
        for ((at, point) in points.withIndex()) {
            if (at == 0) path.moveTo(x(at), y(point.milliseconds)) else path.lineTo(x(at), y(point.milliseconds))
            canvas.drawText(point.tokens.toString(), x(at), bottom + dp(16f), label)
        }
        canvas.drawPath(path, line)
        for ((at, point) in points.withIndex()) canvas.drawCircle(x(at), y(point.milliseconds), dp(4f), dot)
    }

    /** The smallest of 1, 2, 5 and 10 times a power of ten that is not below a value. */
    private fun roundUp(value: Double): Double {
        val power = 10.0.pow(floor(log10(maxOf(value, 1e-6))))
        return power * listOf(1.0, 2.0, 5.0, 10.0).first { it >= value / power * 0.999 }
    }

    private fun short(value: Double, step: Double): String =
        String.format(Locale.getDefault(), if (step >= 1) "%.0f" else if (step >= 0.1) "%.1f" else "%.2f", value)

    private fun paint(colour: Int) = Paint(Paint.ANTI_ALIAS_FLAG).also { it.color = context.getColor(colour) }

    private fun dp(value: Float) = value * resources.displayMetrics.density
}
