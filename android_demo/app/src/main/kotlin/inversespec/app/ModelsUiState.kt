package inversespec.app

import inversespec.edge.BundleExistsException
import inversespec.edge.BundleInfo
import java.io.File

/**
 * An installed bundle.
 *
 * @property info null where the bundle cannot be used; [problem] then is the reason.
 * @property variant the selected one, or the bundle's default.
 */
data class InstalledBundle(
    val folder: File,
    val info: BundleInfo?,
    val problem: String?,
    val builtIn: Boolean,
    val inUse: Boolean,
    val variant: String,
)

/** A long-running file operation, with its progress in bytes; [total] is -1 where it is unknown. */
data class FileJob(val title: String, val done: Long = 0, val total: Long = -1)

/**
 * A bundle that waits for the user's word that it may replace an installed one.
 *
 * @property onAnswer what follows, with whether it is replaced.
 */
class Replacement(val found: BundleExistsException, val onAnswer: (replace: Boolean) -> Unit)

/** State of the Models screen. */
data class ModelsUiState(
    val installed: List<InstalledBundle> = emptyList(),
    val freeMemory: Long = 0,
    val job: FileJob? = null,
    val replacement: Replacement? = null,
    val message: String? = null,
    val failed: Boolean = false,
)
