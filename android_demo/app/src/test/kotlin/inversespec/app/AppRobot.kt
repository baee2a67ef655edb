package inversespec.app

import android.app.ActivityManager
import android.app.Application
import android.content.Intent
import android.graphics.Bitmap
import android.os.Handler
import android.os.Looper
import android.view.PixelCopy
import android.view.View
import android.widget.TextView
import org.robolectric.Robolectric
import org.robolectric.RuntimeEnvironment
import org.robolectric.Shadows.shadowOf
import org.robolectric.android.controller.ActivityController
import org.robolectric.shadows.ShadowAlertDialog
import java.io.File
import java.util.concurrent.TimeUnit

/** Drives the app on Robolectric as a user would: taps, rotates, reads texts, takes screenshots. */
class AppRobot(intent: Intent? = null) {
    private var controller: ActivityController<MainActivity> =
        Robolectric.buildActivity(MainActivity::class.java, intent).setup()
    val activity: MainActivity get() = controller.get()
    val app: App get() = RuntimeEnvironment.getApplication() as App

    init {
        freeMemory(3L shl 30)
    }

    fun freeMemory(bytes: Long) {
        val info = ActivityManager.MemoryInfo()
        info.availMem = bytes
        shadowOf(app.getSystemService(ActivityManager::class.java)).setMemoryInfo(info)
        app.models.refresh()
        waitFor("the memory") { app.models.state.value.freeMemory == bytes }
    }

    /** Runs the main thread until a condition holds; fails after [TIMEOUT_SECONDS]. */
    fun waitFor(description: String, condition: () -> Boolean) {
        val end = System.nanoTime() + TimeUnit.SECONDS.toNanos(TIMEOUT_SECONDS)
        while (true) {
            shadowOf(Looper.getMainLooper()).idleFor(FRAME, TimeUnit.MILLISECONDS)
            if (condition()) return
            if (System.nanoTime() > end) {
                throw AssertionError("waited $TIMEOUT_SECONDS s for: $description; now ${app.fill.state.value}")
            }
            Thread.sleep(1)
        }
    }

    fun waitFor(phase: Phase) {
        waitFor("$phase") { app.fill.state.value.phase == phase }
        settle()
    }

    /**
     * Runs an action while an answer is partly generated. Holds the lock of the state meanwhile, so that the model
     * thread cannot publish another token.
     *
     * @param onRestart called where the answer was complete before this thread saw a part of it, as may happen on a
     *   loaded machine; the answer then is generated again.
     */
    fun duringAnswer(onRestart: () -> Unit = {}, action: () -> Unit) {
        val end = System.nanoTime() + TimeUnit.SECONDS.toNanos(TIMEOUT_SECONDS)
        while (System.nanoTime() < end) {
            val phase = synchronized(app.fill.state) {
                settle()
                val phase = app.fill.state.value.phase
                if (phase == Phase.FILLING && text(R.id.answer).isNotEmpty()) return action()
                phase
            }
            when (phase) {
                Phase.LOADING, Phase.FILLING -> Thread.sleep(0, 200_000)
                Phase.DONE -> {
                    onRestart()
                    app.fill.start()
                }
                else -> throw AssertionError("expected an answer in progress, found $phase")
            }
        }
        throw AssertionError("waited $TIMEOUT_SECONDS s for an answer in progress")
    }

    /** Runs the main thread until every pending update has been drawn. */
    fun settle() = shadowOf(Looper.getMainLooper()).idleFor(10 * FRAME, TimeUnit.MILLISECONDS)

    fun tap(id: Int) {
        val view = activity.findViewById<View>(id)!!
        if (!view.isShown || !view.isEnabled) {
            throw AssertionError("${activity.resources.getResourceEntryName(id)} cannot be tapped")
        }
        view.performClick()
        settle()
    }

    fun tapDialog(button: Int) {
        ShadowAlertDialog.getLatestAlertDialog().getButton(button).performClick()
        settle()
    }

    fun text(id: Int): String = activity.findViewById<TextView>(id)!!.text.toString()

    fun isShown(id: Int): Boolean = activity.findViewById<View>(id)!!.isShown

    /** Rotates the phone: the activity is destroyed and recreated, the process continues. */
    fun rotate(orientation: String) {
        RuntimeEnvironment.setQualifiers("+$orientation")
        controller.recreate()
        settle()
    }

    /** Writes a PNG of the screen to the folder of the system property `screenshots`. */
    fun screenshot(name: String) {
        settle()
        val decor = activity.window.decorView
        val bitmap = Bitmap.createBitmap(decor.width, decor.height, Bitmap.Config.ARGB_8888)
        var result = -1
        PixelCopy.request(activity.window, bitmap, { result = it }, Handler(Looper.getMainLooper()))
        waitFor("the screenshot") { result != -1 }
        check(result == PixelCopy.SUCCESS) { "PixelCopy: $result" }
        val file = File(System.getProperty("screenshots"), "$name.png")
        file.parentFile.mkdirs()
        file.outputStream().use { bitmap.compress(Bitmap.CompressFormat.PNG, 100, it) }
    }

    fun close() {
        controller.pause().stop().destroy()
    }

    companion object {
        const val TIMEOUT_SECONDS = 60L
        private const val FRAME = 20L

        fun samples(): List<Sample> = RuntimeEnvironment.getApplication().assets.samples()

        fun bytes(sample: Sample): ByteArray =
            (RuntimeEnvironment.getApplication() as Application).assets.open(sample.asset).use { it.readBytes() }
    }
}
