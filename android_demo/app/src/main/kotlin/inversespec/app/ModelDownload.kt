package inversespec.app

/**
 * A model that is to be downloaded: state of the download on the Models screen.
 *
 * @property unmetered only over a network without a charge by volume, such as most Wi-Fi.
 * @property running false while it waits for a network, or for its next attempt.
 * @property done bytes on this device, of [total]; -1 where that is unknown.
 * @property problem why the last attempt ended; null where none has.
 */
data class ModelDownload(
    val address: String,
    val unmetered: Boolean,
    val running: Boolean = false,
    val done: Long = 0,
    val total: Long = -1,
    val problem: String? = null,
)
