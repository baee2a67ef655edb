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

/** The app on a phone without a phone: what a finger and an eye do. */
class Phone(intent: Intent? = null) {
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
        wait("the memory") { app.models.state.value.freeMemory == bytes }
    }

    /** Lets the main thread run until [what] holds; fails after a while. */
    fun wait(what: String, holds: () -> Boolean) {
        val end = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE)
        while (true) {
            shadowOf(Looper.getMainLooper()).idleFor(FRAME, TimeUnit.MILLISECONDS)
            if (holds()) return
            if (System.nanoTime() > end) throw AssertionError("waited $PATIENCE s for: $what; now ${app.fill.state.value}")
            Thread.sleep(1)
        }
    }

    fun wait(phase: Phase) {
        wait("$phase") { app.fill.state.value.phase == phase }
        settle()
    }

    /**
     * Does something while an answer is half-way: the model's thread cannot give a token meanwhile, however fast
     * this machine is.
     */
    fun midAnswer(act: () -> Unit) {
        val end = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE)
        while (System.nanoTime() < end) {
            synchronized(app.fill.state) {
                settle()
                val phase = app.fill.state.value.phase
                if (phase == Phase.FILLING && text(R.id.answer).isNotEmpty()) return act()
                if (phase != Phase.LOADING && phase != Phase.FILLING) throw AssertionError("no answer on its way: $phase")
            }
            Thread.sleep(0, 200_000)
        }
        throw AssertionError("waited $PATIENCE s for the middle of an answer")
    }

    /** Lets everything that is due be drawn. */
    fun settle() = shadowOf(Looper.getMainLooper()).idleFor(10 * FRAME, TimeUnit.MILLISECONDS)

    fun tap(id: Int) {
        val view = activity.findViewById<View>(id)!!
        if (!view.isShown || !view.isEnabled) throw AssertionError("${activity.resources.getResourceEntryName(id)} cannot be tapped")
        view.performClick()
        settle()
    }

    fun tapDialog(button: Int) {
        ShadowAlertDialog.getLatestAlertDialog().getButton(button).performClick()
        settle()
    }

    fun text(id: Int): String = activity.findViewById<TextView>(id)!!.text.toString()

    fun isShown(id: Int): Boolean = activity.findViewById<View>(id)!!.isShown

    /** Turns the phone: the activity is destroyed and made anew, the process goes on. */
    fun turn(orientation: String) {
        RuntimeEnvironment.setQualifiers("+$orientation")
        controller.recreate()
        settle()
    }

    /** Writes what is on the screen to a PNG. */
    fun photograph(name: String) {
        settle()
        val decor = activity.window.decorView
        val bitmap = Bitmap.createBitmap(decor.width, decor.height, Bitmap.Config.ARGB_8888)
        var result = -1
        PixelCopy.request(activity.window, bitmap, { result = it }, Handler(Looper.getMainLooper()))
        wait("the picture") { result != -1 }
        check(result == PixelCopy.SUCCESS) { "PixelCopy: $result" }
        val file = File(System.getProperty("screenshots"), "$name.png")
        file.parentFile.mkdirs()
        file.outputStream().use { bitmap.compress(Bitmap.CompressFormat.PNG, 100, it) }
    }

    fun leave() {
        controller.pause().stop().destroy()
    }

    companion object {
        const val PATIENCE = 60L
        private const val FRAME = 20L

        fun samples(): List<Sample> = RuntimeEnvironment.getApplication().assets.samples()

        fun bytes(sample: Sample): ByteArray =
            (RuntimeEnvironment.getApplication() as Application).assets.open(sample.asset).use { it.readBytes() }
    }
}
