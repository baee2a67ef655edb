package inversespec.app

import android.app.Activity
import android.app.AlertDialog
import android.app.Dialog
import android.content.ActivityNotFoundException
import android.content.ContentResolver
import android.content.Intent
import android.net.Uri
import android.os.Build
import android.os.Bundle
import android.text.InputType
import android.text.format.Formatter
import android.view.View
import android.view.ViewGroup
import android.view.WindowInsets
import android.widget.CheckBox
import android.widget.EditText
import android.widget.LinearLayout
import android.widget.Toast
import android.widget.Toolbar

/** The only activity: four screens above a tab bar, and what requires an activity: choosers, dialogs, sharing. */
class MainActivity : Activity(), FillActions, ChatActions, ModelsActions {
    private val app get() = application as App
    private lateinit var screens: List<Screen>
    private lateinit var tabs: List<View>
    private var tab = 0
    private var dialog: Dialog? = null
    private var asked: Replacement? = null
    private var stopObserving: () -> Unit = {}

    override fun onCreate(saved: Bundle?) {
        super.onCreate(saved)
        setContentView(R.layout.main)
        val root = findViewById<View>(R.id.root)!!
        val content = root.requireView<ViewGroup>(R.id.content)
        screens = listOf(
            FillScreen(content, app.fill, this),
            ChatScreen(content, app.chat, this),
            ModelsScreen(content, app.models, app.downloads, this),
            BenchScreen(content, app.bench, ::share),
        )
        for (screen in screens) content.addView(screen.view)
        tabs = listOf(R.id.tab_fill, R.id.tab_chat, R.id.tab_models, R.id.tab_bench).map { root.requireView<View>(it) }
        for ((at, view) in tabs.withIndex()) view.setOnClickListener { show(at) }
        applyWindowInsets(root, root.requireView(R.id.bar))
        show(saved?.getInt(TAB) ?: 0)
        if (saved == null) {
            if (!handle(intent)) openFirstSample()
        } else if (app.fill.state.value == FillUiState()) {
            app.fill.setPrompt(saved.getString(PROMPT).orEmpty())
        }
    }

    override fun onStart() {
        super.onStart()
        app.models.refresh()
        val toolbar = findViewById<Toolbar>(R.id.toolbar)!!
        stopObserving = app.models.state.observe { state ->
            if (state.replacement !== asked) confirmReplacement(state.replacement)
            toolbar.subtitle = state.installed.firstOrNull { it.inUse }?.let { inUse ->
                getString(R.string.model_in_use, inUse.info?.id ?: inUse.folder.name, inUse.variant)
            }
        }
        for (screen in screens) screen.start()
    }

    override fun onStop() {
        stopObserving()
        for (screen in screens) screen.stop()
        super.onStop()
    }

    override fun onDestroy() {
        dialog?.dismiss()
        super.onDestroy()
    }

    override fun onSaveInstanceState(out: Bundle) {
        super.onSaveInstanceState(out)
        out.putInt(TAB, tab)
        out.putString(PROMPT, app.fill.state.value.prompt.take(MAX_SAVED_PROMPT))
    }

    override fun onNewIntent(intent: Intent) {
        super.onNewIntent(intent)
        handle(intent)
    }

    private fun show(at: Int) {
        tab = at
        for ((index, screen) in screens.withIndex()) screen.view.isVisible = index == at
        for ((index, view) in tabs.withIndex()) view.isSelected = index == at
    }

    /**
     * Handles a payload, an address or a prompt sent by another app; false for any other intent. An intent that names
     * this activity passes by the manifest's filters, so what they declare is checked here again.
     */
    private fun handle(intent: Intent): Boolean {
        val text = intent.getStringExtra(Intent.EXTRA_TEXT)
        @Suppress("DEPRECATION")
        val stream = intent.getParcelableExtra<Uri>(Intent.EXTRA_STREAM)
        val document = if (intent.action == Intent.ACTION_VIEW) intent.data else stream
        if (intent.resolveType(contentResolver) !in SHARED_TYPES[intent.action].orEmpty()) return false
        when {
            // This app's own files, such as the one with the key, must not be opened for another app.
            document != null && document.scheme != ContentResolver.SCHEME_CONTENT -> app.fill.refuseDocument(document)
            document != null -> app.fill.openDocument(document)
            text == null -> return false
            // The user confirms an address before anything is sent to it.
            text.trim().matches(Regex("https?://\\S+")) -> {
                enterService(text.trim())
                show(1)
                return true
            }
            else -> app.fill.setPrompt(text)
        }
        show(0)
        return true
    }

    /** On the first start, loads a sample that can be filled without a network. */
    private fun openFirstSample() {
        if (app.fill.state.value == FillUiState()) assets.samples().firstOrNull()?.let(app.fill::openSample)
    }

    override fun chooseSample() {
        val samples = assets.samples()
        if (samples.isEmpty()) return Toast.makeText(this, R.string.samples_none, Toast.LENGTH_LONG).show()
        replaceDialog(
            AlertDialog.Builder(this)
                .setTitle(R.string.samples)
                .setItems(samples.map { it.title }.toTypedArray()) { _, at -> app.fill.openSample(samples[at]) },
        )
    }

    override fun choosePayload() = choose(PAYLOAD)

    override fun chooseZip() = choose(ZIP)

    private fun choose(request: Int) {
        val intent = Intent(Intent.ACTION_OPEN_DOCUMENT).addCategory(Intent.CATEGORY_OPENABLE).setType("*/*")
        try {
            startActivityForResult(intent, request)
        } catch (missing: ActivityNotFoundException) {
            Toast.makeText(this, R.string.error_no_app, Toast.LENGTH_LONG).show()
        }
    }

    override fun onActivityResult(request: Int, result: Int, data: Intent?) {
        super.onActivityResult(request, result, data)
        val uri = data?.data
        if (result != RESULT_OK || uri == null) return
        when (request) {
            PAYLOAD -> app.fill.openDocument(uri)
            ZIP -> app.models.importZip(uri)
        }
    }

    override fun enterService() = enterService(null)

    /** Asks for a service; the last one is there to be confirmed. */
    private fun enterService(given: String?) {
        val last = app.chat.service
        val address = EditText(this).apply {
            setHint(R.string.service_address)
            inputType = InputType.TYPE_CLASS_TEXT or InputType.TYPE_TEXT_VARIATION_URI
            setText(given ?: last?.address)
        }
        val key = EditText(this).apply {
            setHint(R.string.service_key)
            inputType = InputType.TYPE_CLASS_TEXT or InputType.TYPE_TEXT_VARIATION_PASSWORD
            importantForAutofill = View.IMPORTANT_FOR_AUTOFILL_NO
            // A key belongs to its address.
            if (given == null) setText(last?.key)
        }
        replaceDialog(
            AlertDialog.Builder(this)
                .setTitle(R.string.service_title)
                .setView(column(address, key))
                .setNegativeButton(R.string.cancel, null)
                .setPositiveButton(R.string.service_use) { _, _ ->
                    val secret = key.text.toString().trim().ifEmpty { null }
                    app.chat.useService(ServiceSettings(address.text.toString().trim(), secret))
                },
        )
    }

    /** The views of a dialog, one below the other. */
    private fun column(vararg views: View): View {
        val side = (24 * resources.displayMetrics.density).toInt()
        return LinearLayout(this).apply {
            orientation = LinearLayout.VERTICAL
            setPadding(side, side / 3, side, 0)
            for (view in views) addView(view)
        }
    }

    /** Asks for the address of a model. */
    override fun enterDownload() {
        val address = EditText(this).apply {
            setHint(R.string.download_address)
            inputType = InputType.TYPE_CLASS_TEXT or InputType.TYPE_TEXT_VARIATION_URI
        }
        val unmetered = CheckBox(this).apply {
            setText(R.string.download_unmetered)
            isChecked = true
        }
        replaceDialog(
            AlertDialog.Builder(this)
                .setTitle(R.string.download_title)
                .setView(column(address, unmetered))
                .setNegativeButton(R.string.cancel, null)
                .setPositiveButton(R.string.download) { _, _ ->
                    app.downloads.download(address.text.toString().trim(), unmetered.isChecked)
                },
        )
    }

    override fun chooseVariant(bundle: InstalledBundle) {
        val variants = bundle.info?.variants ?: return
        if (variants.size == 1) return selectIfItFits(bundle, variants[0].name)
        val items = variants.map { getString(R.string.variant_item, it.name, size(it.bytes)) }
        replaceDialog(
            AlertDialog.Builder(this)
                .setTitle(R.string.variant_title)
                .setItems(items.toTypedArray()) { _, at -> selectIfItFits(bundle, variants[at].name) },
        )
    }

    private fun selectIfItFits(bundle: InstalledBundle, variant: String) {
        val needed = bundle.info?.memoryNeeded(variant) ?: return
        val free = app.models.state.value.freeMemory
        if (needed <= free) return app.models.select(bundle, variant)
        replaceDialog(
            AlertDialog.Builder(this)
                .setTitle(R.string.memory_title)
                .setMessage(getString(R.string.memory_detail, size(needed), size(free)))
                .setNegativeButton(R.string.cancel, null)
                .setPositiveButton(R.string.memory_anyway) { _, _ -> app.models.select(bundle, variant) },
        )
    }

    override fun confirmDelete(bundle: InstalledBundle) {
        val freed = bundle.info?.bytes ?: 0
        replaceDialog(
            AlertDialog.Builder(this)
                .setTitle(getString(R.string.delete_title, bundle.info?.id ?: bundle.folder.name))
                .setMessage(getString(R.string.delete_detail, size(freed)))
                .setNegativeButton(R.string.cancel, null)
                .setPositiveButton(R.string.delete) { _, _ -> app.models.delete(bundle) },
        )
    }

    /** Asks whether another bundle may replace an installed one; both are named by their hashes. */
    private fun confirmReplacement(replacement: Replacement?) {
        asked = replacement
        val found = replacement?.found ?: return
        replaceDialog(
            AlertDialog.Builder(this)
                .setTitle(getString(R.string.replace_title, found.folder.name))
                .setMessage(getString(R.string.replace_detail, found.installed, found.offered))
                .setNegativeButton(R.string.cancel) { _, _ -> app.models.answer(replacement, replace = false) }
                .setPositiveButton(R.string.replace) { _, _ -> app.models.answer(replacement, replace = true) }
                .setOnCancelListener { app.models.answer(replacement, replace = false) },
        )
    }

    private fun share(text: String) {
        val intent = Intent(Intent.ACTION_SEND).setType("text/plain").putExtra(Intent.EXTRA_TEXT, text)
        startActivity(Intent.createChooser(intent, null))
    }

    private fun replaceDialog(builder: AlertDialog.Builder) {
        dialog?.dismiss()
        dialog = builder.show()
    }

    private fun size(bytes: Long): String = Formatter.formatShortFileSize(this, bytes)

    /** Pads the content by the system bars, behind which apps are drawn from Android 15 on. */
    private fun applyWindowInsets(root: View, bar: View) {
        root.setOnApplyWindowInsetsListener { _, insets ->
            if (Build.VERSION.SDK_INT >= Build.VERSION_CODES.R) {
                val bars = insets.getInsets(WindowInsets.Type.systemBars() or WindowInsets.Type.displayCutout())
                val keyboard = insets.getInsets(WindowInsets.Type.ime()).bottom
                root.setPadding(bars.left, bars.top, bars.right, maxOf(keyboard - bars.bottom, 0))
                bar.setPadding(0, 0, 0, bars.bottom)
                WindowInsets.CONSUMED
            } else {
                insets
            }
        }
    }

    private companion object {
        /** What the manifest's filters accept of other apps: types by action. */
        val SHARED_TYPES = mapOf(
            Intent.ACTION_SEND to setOf("application/octet-stream", "text/plain"),
            Intent.ACTION_VIEW to setOf("application/octet-stream"),
        )
        const val TAB = "tab"
        const val PROMPT = "prompt"
        const val MAX_SAVED_PROMPT = 10_000
        const val PAYLOAD = 1
        const val ZIP = 2
    }
}
