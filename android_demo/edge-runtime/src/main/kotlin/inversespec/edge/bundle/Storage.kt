package inversespec.edge.bundle

import inversespec.edge.BundleFileException
import java.io.File

/**
 * Room in a folder's storage: checked before an operation begins and while it writes, so that it never fills the
 * device.
 *
 * @param operation named in errors. [free] is the number of free bytes.
 */
internal class Storage(
    private val operation: String,
    folder: File,
    private val free: () -> Long = folder::getUsableSpace,
) {
    /** Throws where [bytes] more, and what is left to others, do not fit. */
    fun require(bytes: Long) {
        val found = free()
        if (found < bytes + SPARE_BYTES) {
            throw BundleFileException(
                "$operation: expected ${bytes + SPARE_BYTES} bytes of free storage, found $found. Delete something first.",
            )
        }
    }

    companion object {
        /** Left free beside a bundle. */
        const val SPARE_BYTES = 32L shl 20
    }
}
