package inversespec.edge

import java.io.File
import java.io.IOException
import java.io.OutputStream
import java.nio.Buffer
import java.nio.ByteBuffer
import java.nio.CharBuffer
import java.nio.charset.CodingErrorAction
import java.security.MessageDigest

private const val HEX = "0123456789abcdef"

/** SHA-256 of the concatenated parts: 32 bytes. */
internal fun sha256(vararg parts: ByteArray): ByteArray =
    MessageDigest.getInstance("SHA-256").run {
        parts.forEach(::update)
        digest()
    }

/** Writes a file so that it is never seen half-written. Throws IOException. */
internal fun writeWhole(file: File, write: (OutputStream) -> Unit) {
    val beside = File(file.parentFile, "${file.name}.part")
    try {
        file.absoluteFile.parentFile?.mkdirs()
        beside.outputStream().use(write)
        if (!beside.renameTo(file)) throw IOException("it cannot be given its name")
    } finally {
        beside.delete()
    }
}

internal fun ByteArray.toHex(): String = buildString(2 * size) {
    for (byte in this@toHex) append(HEX[byte.toInt() shr 4 and 15]).append(HEX[byte.toInt() and 15])
}

internal fun String.hexToBytes(): ByteArray = ByteArray(length / 2) {
    (Character.digit(this[2 * it], 16) shl 4 or Character.digit(this[2 * it + 1], 16)).toByte()
}

/** Decodes UTF-8; calls [refuse], which must throw, with the offset of the first invalid byte. */
internal inline fun strictUtf8(data: ByteArray, refuse: (at: Int) -> Nothing): String {
    val input = ByteBuffer.wrap(data)
    val out = CharBuffer.allocate(data.size)
    val decoder = Charsets.UTF_8.newDecoder()
        .onMalformedInput(CodingErrorAction.REPORT)
        .onUnmappableCharacter(CodingErrorAction.REPORT)
    val result = decoder.decode(input, out, true)
    if (result.isError) refuse(input.position())
    // Called on the base class: the covariant override of newer Java versions does not exist on Android 8.
    (out as Buffer).flip()
    return out.toString()
}
