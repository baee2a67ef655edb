package inversespec.app

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

    fun chooseFolder()
}

/** The installed bundles: select, verify, delete, import. */
class ModelsScreen(
    parent: ViewGroup,
    private val viewModel: ModelsViewModel,
    private val actions: ModelsActions,
) : Screen(parent, R.layout.models) {
    private val list = find<LinearLayout>(R.id.model_list)
    private val jobCard = find<View>(R.id.job_card)
    private val jobTitle = find<TextView>(R.id.job_title)
    private val jobProgress = find<ProgressBar>(R.id.job_progress)
    private val messageCard = find<View>(R.id.models_message_card)
    private val message = find<TextView>(R.id.models_message)
    private val imports = listOf(R.id.import_zip, R.id.import_folder).map { find<Button>(it) }

    init {
        imports[0].setOnClickListener { actions.chooseZip() }
        imports[1].setOnClickListener { actions.chooseFolder() }
        find<View>(R.id.job_cancel).setOnClickListener { viewModel.cancelJob() }
    }

    override fun observe() = viewModel.state.observe(::show)

    private fun show(state: ModelsUiState) {
        val job = state.job
        jobCard.isVisible = job != null
        if (job != null) showJob(job)
        messageCard.isVisible = state.message != null
        messageCard.setBackgroundResource(if (state.failed) R.drawable.bg_error_card else R.drawable.bg_card)
        message.setTextColor(context.getColor(if (state.failed) R.color.error else R.color.text))
        message.text = state.message
        for (button in imports) button.isEnabled = job == null
        while (list.childCount > state.installed.size) list.removeViewAt(list.childCount - 1)
        while (list.childCount < state.installed.size) {
            list.addView(LayoutInflater.from(context).inflate(R.layout.model_item, list, false))
        }
        for ((at, bundle) in state.installed.withIndex()) showBundle(list.getChildAt(at), bundle, state)
    }

    private fun showJob(job: FileJob) {
        jobProgress.isIndeterminate = job.total <= 0
        if (job.total > 0) {
            jobProgress.progress = (jobProgress.max * job.done / job.total).toInt()
            jobTitle.text = context.getString(R.string.job_progress, job.title, bytes(job.done), bytes(job.total))
        } else {
            jobTitle.text = job.title
        }
    }

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
