package inversespec.app

import android.content.res.AssetManager
import org.json.JSONArray
import java.io.FileNotFoundException

/** A payload among the app's assets, with the prompt it was made for. */
data class Sample(val title: String, val prompt: String, val asset: String)

/** The samples of this build; empty where it was built without any. */
fun AssetManager.samples(): List<Sample> {
    val index = try {
        open("samples/index.json").use { it.readBytes().toString(Charsets.UTF_8) }
    } catch (missing: FileNotFoundException) {
        return emptyList()
    }
    val entries = JSONArray(index)
    return List(entries.length()) { number ->
        val entry = entries.getJSONObject(number)
        Sample(entry.getString("title"), entry.getString("prompt"), "samples/" + entry.getString("file"))
    }
}
