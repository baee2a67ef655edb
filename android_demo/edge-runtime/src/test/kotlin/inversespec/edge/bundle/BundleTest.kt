package inversespec.edge.bundle

import inversespec.edge.*
import org.junit.jupiter.api.Assertions.*
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.io.TempDir
import java.io.ByteArrayOutputStream
import java.io.File
import java.util.concurrent.CancellationException
import java.util.zip.ZipEntry
import java.util.zip.ZipOutputStream

internal class BundleTest {
    @TempDir
    lateinit var temp: File

    private val into: File get() = File(temp, "bundles")

    private fun copy(): File = File(temp, "copy").also { shippedBundle.copyRecursively(it, overwrite = true) }

    private fun files(): Map<String, ByteArray> = shippedBundle.walk().filter { it.isFile }
        .associate { it.relativeTo(shippedBundle).path.replace(File.separatorChar, '/') to it.readBytes() }

    private fun zip(files: Map<String, ByteArray>): ByteArray = ByteArrayOutputStream().also { out ->
        ZipOutputStream(out).use { zip ->
            for ((name, data) in files) {
                zip.putNextEntry(ZipEntry(name))
                zip.write(data)
            }
        }
    }.toByteArray()

    private inline fun <reified T : BundleException> refused(files: Map<String, ByteArray>, sha256: String? = null) {
        refused<T> { Bundles.importZip(zip(files).inputStream(), into, sha256) }
    }

    /** Asserts the class of the exception and that nothing is left behind. */
    private inline fun <reified T : Exception> refused(body: () -> Unit) {
        val before = into.list().orEmpty().toSet()
        val error = try {
            body()
            null
        } catch (error: Exception) {
            error
        }
        assertEquals(T::class.java, error?.javaClass, "$error")
        if (error is BundleException) assertTrue(listOf("expected", "missing").any { it in error.message!! })
        assertEquals(before, into.list().orEmpty().toSet())
    }

    @Test
    fun `inspect describes a bundle`() {
        val info = Bundles.inspect(shippedBundle)
        assertEquals("tiny-qwen", info.id)
        assertEquals(2, info.contractTag.length)
        assertTrue(info.variant in info.variants.map { it.name })
        assertEquals(files().filterKeys { it != MANIFEST }.values.sumOf { it.size.toLong() }, info.bytes)
        assertTrue(info.memoryNeeded() > info.variants.first { it.name == info.variant }.bytes)
        var last = 0L
        Bundles.verify(shippedBundle) { done, total ->
            assertTrue(done in last..total)
            last = done
        }
        assertEquals(info.bytes, last)
    }

    @Test
    fun `an incomplete bundle is refused, naming the file`() {
        val model = files().keys.first { it.endsWith(".data") }
        assertThrows(BundleMissingException::class.java) { Bundles.inspect(File(temp, "absent")) }
        assertThrows(BundleMissingException::class.java) { EdgeRuntime.open(temp) }
        val bundle = copy()
        File(bundle, model).run { writeBytes(readBytes().also { it[100] = (it[100] + 1).toByte() }) }
        assertThrows(BundleHashException::class.java) { Bundles.verify(bundle) }
        File(bundle, model).appendText("x")
        assertThrows(BundleFileException::class.java) { Bundles.verify(bundle) }
        File(bundle, model).delete()
        val error = assertThrows(BundleFileException::class.java) { Bundles.verify(bundle) }
        assertTrue(model.substringAfter('/') in error.message!!)
        val options = RuntimeOptions(variant = "int3")
        assertThrows(BundleVariantException::class.java) { EdgeRuntime.open(shippedBundle, options) }
        val cancel = CancelSignal().also { it.cancel() }
        assertThrows(CancellationException::class.java) { Bundles.verify(shippedBundle, null, cancel) }
    }

    @Test
    fun `an invalid manifest is refused, naming the field`() {
        val text = String(files().getValue(MANIFEST))
        val changes = mapOf(
            "\"schema\": 1" to "\"schema\": 2",
            "\"context\": " to "\"context\": -",
            "\"default_variant\": \"" to "\"default_variant\": \"x",
            "\"head_dim\": " to "\"head_dims\": ",
            "\"num_hidden_layers\": " to "\"num_hidden_layers\": 1000",
            "\"graph\": \"fp32" to "\"graph\": \"../fp32",
            "\"fp32/model.onnx\": {" to "\"../model.onnx\": {",
            "\"size\": " to "\"size\": \"1\", \"x\": ",
            "\"tokenizer.json\"" to "\"other.json\"",
            "<|im_end|>" to "<|end|>",
            "{" to "[",
        )
        for ((before, after) in changes) {
            assertTrue(before in text, before)
            val changed = text.replaceFirst(before, after).toByteArray()
            val error = assertThrows(BundleSchemaException::class.java, { Manifest.parse(changed) }, after)
            assertTrue("bundle.json: expected" in error.message!!, error.message)
        }
    }

    @Test
    fun `a graph reads no weights that the manifest does not list`() {
        fun weights(vararg names: String, key: String = "\n\blocation\u0012") = names.joinToString("") { key + it.length.toChar() + it }
        val bundle = copy()
        val graph = File(bundle, "fp32/model.onnx")
        File(bundle, "fp32/model.onnx.more").writeText("x")
        graph.writeText(weights("model.onnx.data"), Charsets.ISO_8859_1)
        assertEquals(graph, Bundle.open(bundle).graph("fp32"))
        for (bytes in listOf(
            weights("../../x"), weights("/etc/passwd"), weights("model.onnx.data", "model.onnx.more"),
            weights("model.onnx.data", key = "\n\u0088\u0000location\u0012"), weights("model.onnx.data").dropLast(9),
        )) {
            graph.writeText(bytes, Charsets.ISO_8859_1)
            refused<BundleFileException> { EdgeRuntime.open(bundle, RuntimeOptions("fp32", verifyHashes = false)) }
        }
    }

    @Test
    fun `another rule for contents of messages is refused`() {
        val text = String(files().getValue(MANIFEST))
        val stated = "\"contents\": \"plain\""
        assertTrue(stated in text)
        for (other in listOf("\"raw\"", "1", "null")) {
            val changed = text.replace(stated, "\"contents\": $other")
            assertThrows(BundleSchemaException::class.java, { Manifest.parse(changed.toByteArray()) }, other)
        }
    }

    @Test
    fun `a contract that names its ends is read, and no anchor is a special token`() {
        val text = String(files().getValue(MANIFEST))
        fun named(ends: String) =
            Manifest.parse(text.replaceFirst("\"template_hash\"", "\"ends\": $ends, \"template_hash\"").toByteArray())
        val before = Manifest.parse(text.toByteArray()).contract
        val found = named("[\"${Contract.IM_END}\"]").contract
        assertEquals(setOf(before.special.getValue(Contract.IM_END)), found.eosIds)
        assertTrue(before.identity != found.identity)
        for (ends in listOf("[\"<|nothing|>\"]", "\"<|im_end|>\"", "[1]")) {
            assertThrows(BundleSchemaException::class.java, { named(ends) }, ends)
        }
        val low = Contract(
            24,
            "a".repeat(64),
            mapOf(Contract.END_OF_TEXT to 0, Contract.IM_END to 2),
            "0".repeat(64),
            listOf(Contract.IM_END),
        )
        // The same as in tests/payload/test_contract.py.
        assertEquals("2bcfb4ded6e4f9ef39ba3d76bf7c6ae133663dd6bb261e8e9029bb072cf649c5", low.identity)
        assertEquals(1, AnchorSet(listOf(0), listOf(3), 8, low).size)
        assertThrows(AnchorRangeException::class.java) { AnchorSet(listOf(0), listOf(2), 8, low) }
    }

    @Test
    fun `an imported zip archive runs`() {
        val data = zip(files())
        val sha256 = sha256(data).toHex().uppercase()
        var last = 0L
        val dir = Bundles.importZip(data.inputStream(), into, sha256, data.size.toLong()) { done, total ->
            assertEquals(data.size.toLong(), total)
            assertTrue(done >= last)
            last = done
        }
        assertEquals(File(into, "tiny-qwen"), dir)
        Bundles.verify(dir)
        EdgeRuntime.open(dir, RuntimeOptions(threads = 1)).use { model ->
            assertEquals(3, model.generate("Hi", 3) {}.tokens)
        }
        // Again, in a folder and with unlisted files: it replaces the first.
        val more = mapOf("some/NOTES.txt" to ByteArray(3), "other.txt" to ByteArray(3))
        val nested = files().mapKeys { "some/${it.key}" } + more
        val file = File(temp, "bundle.zip").apply { writeBytes(zip(nested)) }
        assertEquals(dir, Bundles.importZip(file, into))
        assertEquals(files().keys, dir.walk().filter { it.isFile }.map { it.relativeTo(dir).path }.toSet())
        assertEquals(listOf("tiny-qwen"), into.list()!!.toList())
    }

    @Test
    fun `files of any origin are imported`() {
        val dir = Bundles.importFiles(into) { path -> files()[path]?.inputStream() }
        Bundles.verify(dir)
        val model = files().keys.first { it.endsWith(".data") }
        refused<BundleFileException> {
            Bundles.importFiles(into) { path -> files()[path]?.takeIf { path != model }?.inputStream() }
        }
        refused<BundleFileException> {
            Bundles.importFiles(into) { (files()[it]!! + ByteArray(if (it == model) 1 else 0)).inputStream() }
        }
        refused<BundleFileException> { Bundles.importFiles(into) { null } }
        val changed = files().getValue(model).also { it[5] = (it[5] + 1).toByte() }
        refused<BundleHashException> {
            Bundles.importFiles(into) { path -> (if (path == model) changed else files()[path]!!).inputStream() }
        }
        Bundles.verify(dir)
    }

    @Test
    fun `another bundle of the same name is replaced only where that is asked for`() {
        val first = Bundles.importZip(zip(files()).inputStream(), into)
        val other = files() + (MANIFEST to files().getValue(MANIFEST) + '\n'.code.toByte())
        val hashes = listOf(files(), other).map { sha256(it.getValue(MANIFEST)).toHex() }
        for (import in listOf<(Boolean) -> File>(
            { Bundles.importZip(zip(other).inputStream(), into, replace = it) },
            { Bundles.importFiles(into, replace = it) { path -> other[path]?.inputStream() } },
        )) {
            val error = assertThrows(BundleExistsException::class.java) { import(false) }
            assertEquals(hashes, listOf(error.installed, error.offered))
            assertTrue(hashes.all { it in error.message!! })
            assertEquals(listOf("tiny-qwen"), into.list()!!.toList())
            assertEquals(hashes[0], sha256(File(first, MANIFEST).readBytes()).toHex())
            assertEquals(first, import(true))
            assertEquals(hashes[1], sha256(File(first, MANIFEST).readBytes()).toHex())
            Bundles.importZip(zip(files()).inputStream(), into, replace = true)
        }
        Bundles.importZip(zip(files()).inputStream(), into) // the same one, once more
    }

    @Test
    fun `an import begins only where there is room, and ends where it runs out`() {
        val data = zip(files())
        fun importer(free: () -> Long) =
            BundleImporter(into, Long.MAX_VALUE, false, CancelSignal(), { _, _ -> }, Storage("import", into, free))
        fun refusedForRoom(body: () -> Unit) {
            refused<BundleFileException>(body)
            assertTrue("of free storage" in assertThrows(BundleFileException::class.java, body).message!!)
        }
        val total = Bundles.inspect(shippedBundle).bytes
        var opened = 0
        refusedForRoom { importer { data.size.toLong() }.importZip(data.inputStream(), null, data.size.toLong()) }
        refusedForRoom {
            importer { Storage.SPARE_BYTES + total - 1 }.importFiles { path -> files()[path]?.inputStream().also { opened++ } }
        }
        assertEquals(2, opened) // the manifest alone, twice
        refusedForRoom {
            var left = Storage.SPARE_BYTES + 500_000
            importer { left.also { left -= 1 shl 16 } }.importZip(data.inputStream(), null, -1)
        }
        importer { Storage.SPARE_BYTES + total }.importZip(data.inputStream(), null, data.size.toLong())
    }

    @Test
    fun `archive entries outside the folder are refused`() {
        for (name in listOf("../evil", "/evil", "a/../../evil", "a//b", "..\\evil", "./x", "C:evil")) {
            refused<BundleFileException>(mapOf(name to ByteArray(3)))
        }
        assertEquals(setOf("bundles"), temp.list()!!.toSet())
    }

    @Test
    fun `an invalid archive is refused and leaves nothing behind`() {
        val good = files()
        val model = good.keys.first { it.endsWith(".data") }
        refused<BundleFileException>(mapOf("a.txt" to ByteArray(3)))
        refused<BundleFileException>(good + mapOf("x/$MANIFEST" to ByteArray(3)))
        refused<BundleFileException>(good - model)
        val changed = good.getValue(model).clone().also { it[9] = (it[9] + 1).toByte() }
        refused<BundleHashException>(good + (model to changed))
        refused<BundleHashException>(good, "0".repeat(64))
        refused<BundleFileException>((0..300).associate { "f$it" to ByteArray(0) })
        refused<BundleFileException> { Bundles.importZip("no zip".byteInputStream(), into) }
        refused<BundleFileException> { Bundles.importZip(zip(good).copyOf(5000).inputStream(), into) }
        refused<BundleFileException> { Bundles.importZip(File(temp, "absent.zip"), into) }
        refused<BundleFileException> { Bundles.importZip(zip(good).inputStream(), into, maxBytes = 50_000) }
        val bomb = zip(mapOf("zeros" to ByteArray(4 shl 20)))
        refused<BundleFileException> { Bundles.importZip(bomb.inputStream(), into, maxBytes = 1 shl 20) }
        val cancel = CancelSignal()
        refused<CancellationException> {
            Bundles.importZip(zip(good).inputStream(), into, cancel = cancel) { done, _ ->
                if (done > 3000) cancel.cancel()
            }
        }
    }

    @Test
    fun `the staging folder of a killed import is deleted by the next import`() {
        File(into, ".import-dead/x").mkdirs()
        Bundles.importZip(zip(files()).inputStream(), into)
        assertEquals(listOf("tiny-qwen"), into.list()!!.toList())
    }
}
