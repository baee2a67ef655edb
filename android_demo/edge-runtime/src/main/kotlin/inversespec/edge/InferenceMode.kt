package inversespec.edge

/** Where a turn of a conversation is answered. */
enum class InferenceMode(val label: String) {
    /** The device alone; nothing leaves it. */
    ONLY_ON_DEVICE("only_on_device"),

    /** The device writes at once; where it doubts what it writes the cloud is asked, and the text refined in place. */
    PREFER_ON_DEVICE("prefer_on_device"),

    /** The cloud is asked first; where it cannot be reached the device answers alone. */
    PREFER_IN_CLOUD("prefer_in_cloud"),

    /** The cloud's anchors, or an error. */
    ONLY_IN_CLOUD("only_in_cloud"),
}
