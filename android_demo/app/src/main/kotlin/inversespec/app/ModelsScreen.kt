package inversespec.app

import android.net.Uri
import android.view.LayoutInflater
import android.view.View
import android.view.ViewGroup
import android.widget.Button
import android.widget.LinearLayout
import android.widget.ProgressBar
import android.widget.TextView

/** Actions of the Models screen that require the activity. */
interface ModelsActions {
    fun chooseVariant(bundle: InstalledBundle)

    fun confirmDelete(bundle: InstalledBundle)

    fun chooseZip()

    fun enterDownload()
}

/** The installed bundles: select, verify, delete, import, download. */
class ModelsScreen(
    parent: ViewGroup,
    private val viewModel: ModelsViewModel,
    private val downloads: DownloadViewModel,
    private val actions: ModelsActions,
) : Screen(parent, R.layout.models) {
    private val list = find<LinearLayout>(R.id.model_list)
    private val jobCard = find<View>(R.id.job_card)
    private val jobTitle = find<TextView>(R.id.job_title)
    private val jobProgress = find<ProgressBar>(R.id.job_progress)
    private val messageCard = find<View>(R.id.models_message_card)
    private val message = find<TextView>(R.id.models_message)
    private val downloadCard = find<View>(R.id.download_card)
    private val downloadTitle = find<TextView>(R.id.download_title)
    private val downloadProgress = find<ProgressBar>(R.id.download_progress)
    private val download = find<Button>(R.id.download)
    private val importZip = find<Button>(R.id.import_zip)

    init {
        importZip.setOnClickListener { actions.chooseZip() }
        download.setOnClickListener { actions.enterDownload() }
        find<View>(R.id.download_cancel).setOnClickListener { downloads.cancel() }
        find<View>(R.id.job_cancel).setOnClickListener { viewModel.cancelJob() }
    }

    override fun observe(): () -> Unit {
        val ends = listOf(viewModel.state.observe(::show), downloads.state.observe(::showDownload))
        return { for (end in ends) end() }
    }

    private fun showDownload(state: ModelDownload?) {
        downloadCard.isVisible = state != null
        download.isEnabled = state == null
        if (state == null) return
        val host = Uri.parse(state.address).authority.orEmpty()
        downloadProgress.isVisible = state.running || state.total > 0
        showProgress(downloadProgress, state.done, state.total)
        downloadTitle.text = when {
            state.running && state.total > 0 -> progressLine(host, state.done, state.total)
            state.running -> host
            state.problem != null -> context.getString(R.string.download_again, state.problem)
            state.unmetered -> context.getString(R.string.download_waits_unmetered, host)
            else -> context.getString(R.string.download_waits, host)
        }
    }

    private fun show(state: ModelsUiState) {
        val job = state.job
        jobCard.isVisible = job != null
        if (job != null) showJob(job)
        messageCard.isVisible = state.message != null
        messageCard.setBackgroundResource(if (state.failed) R.drawable.bg_error_card else R.drawable.bg_card)
        message.setTextColor(context.getColor(if (state.failed) R.color.error else R.color.text))
        message.text = state.message
        importZip.isEnabled = job == null
        while (list.childCount > state.installed.size) list.removeViewAt(list.childCount - 1)
        while (list.childCount < state.installed.size) {
            list.addView(LayoutInflater.from(context).inflate(R.layout.model_item, list, false))
        }
        for ((at, bundle) in state.installed.withIndex()) showBundle(list.getChildAt(at), bundle, state)
    }

    private fun showJob(job: FileJob) {
        showProgress(jobProgress, job.done, job.total)
        jobTitle.text = if (job.total > 0) progressLine(job.title, job.done, job.total) else job.title
    }

    private fun showProgress(bar: ProgressBar, done: Long, total: Long) {
        bar.isIndeterminate = total <= 0
        if (total > 0) bar.progress = (bar.max * done / total).toInt()
    }

    private fun progressLine(title: String, done: Long, total: Long): String =
        context.getString(R.string.job_progress, title, bytes(done), bytes(total))

    private fun showBundle(item: View, bundle: InstalledBundle, state: ModelsUiState) {
        val info = bundle.info
        item.requireView<TextView>(R.id.model_name).text = info?.id ?: bundle.folder.name
        item.requireView<View>(R.id.model_in_use).isVisible = bundle.inUse
        item.requireView<TextView>(R.id.model_detail).text = if (info == null) {
            bundle.problem
        } else {
            context.getString(
                R.string.model_detail,
                bundle.variant,
                bytes(info.bytes),
                info.context,
                bytes(info.memoryNeeded(bundle.variant)),
                bytes(state.freeMemory),
                info.contract.identity.take(12),
            )
        }
        val idle = state.job == null
        button(item, R.id.model_use, idle && info != null && (!bundle.inUse || info.variants.size > 1)) {
            actions.chooseVariant(bundle)
        }
        button(item, R.id.model_verify, idle && info != null) { viewModel.verify(bundle) }
        button(item, R.id.model_delete, idle && !bundle.builtIn) { actions.confirmDelete(bundle) }
    }

    private fun button(item: View, id: Int, enabled: Boolean, action: () -> Unit) {
        val button = item.requireView<Button>(id)
        button.isEnabled = enabled
        button.setOnClickListener { action() }
    }
}
