package inversespec.edge.bundle

import inversespec.edge.Bundles
import inversespec.edge.CancelSignal
import java.io.File

/** Downloads a bundle in a process of its own, to be killed: URL, folder, bytes of a chunk. */
internal object FetchMain {
    @JvmStatic
    fun main(arguments: Array<String>) {
        val (url, into, chunk) = arguments
        BundleFetcher(url, File(into), Bundles.MAX_BUNDLE_BYTES, false, CancelSignal(), { _, _ -> }, chunkBytes = chunk.toLong())
            .fetch()
    }
}
