package inversespec.edge

import inversespec.edge.payload.HEADER_BYTES
import inversespec.edge.payload.codecs.RangeDecoder
import inversespec.edge.payload.crc
import inversespec.edge.payload.uint16
import inversespec.edge.text.Json
import inversespec.edge.text.JsonException
import kotlin.math.PI
import kotlin.math.asin
import kotlin.math.sin
import kotlin.math.sqrt

private const val MARK = 0xD0
private const val MAX_SLOTS = 64
private const val MAX_OPTIONS = 64
private const val MAX_TEXT = 4096
private const val LITTLE = 0.01
private val STEPS = intArrayOf(14, 8, 4)

/**
 * One question of a form.
 *
 * @property options the texts that may stand there, and [values] what they stand for: text, Long, Boolean or null.
 * @property ofSet whether it asks if [member] is one of a set; its values are Booleans then.
 */
data class Slot(
    val name: String,
    val options: List<String>,
    val values: List<Any?>,
    val says: String = "",
    val member: Any? = null,
    val ofSet: Boolean = false,
)

/**
 * Questions with listed options, and the probabilities of their options that a cloud has read (SPEC.md, "Decisions").
 *
 * Not responsible for reading them with a model on this device. The keywords of a schema are the service's to check.
 */
class Form private constructor(parts: List<Any>, says: String) {
    val slots: List<Slot> = parts.filterIsInstance<Slot>()

    private val hash: ByteArray

    /** 64 hex digits, the same on every side that has the schema. */
    val identity: String get() = hash.toHex()

    init {
        check(slots.size in 1..MAX_SLOTS, "form", "1 to $MAX_SLOTS questions", slots.size)
        for (slot in slots) {
            val differ = slot.options.toSet().size == slot.options.size && "" !in slot.options
            check(differ && slot.options.size in 2..MAX_OPTIONS, slot.name, "2 to $MAX_OPTIONS options", slot.options)
        }
        val said = parts.joinToString(",", "[", "]") {
            if (it !is Slot) return@joinToString quoted(it as String)
            "[${quoted(it.name)},${it.options.joinToString(",", "[", "]", transform = ::quoted)},${quoted(it.says)}]"
        }
        val text = "[${quoted(says)},$said]".toByteArray()
        check(text.size <= MAX_TEXT, "form", "at most $MAX_TEXT bytes in all", text.size)
        hash = sha256(text)
    }

    /** The object that the chosen options make, one per slot; a set is a list. */
    fun value(chosen: List<Int>): Map<String, Any?> {
        val found = LinkedHashMap<String, Any?>()
        for ((slot, index) in slots.zip(chosen)) {
            val value = slot.values[index]
            found[slot.name] = if (slot.ofSet) {
                (found[slot.name] as List<*>? ?: listOf<Any?>()) + if (value == true) listOf(slot.member) else listOf()
            } else {
                value
            }
        }
        return found
    }

    /**
     * The probabilities of the options of the questions that are answered, by index.
     *
     * @param text that the questions are about.
     * @throws PayloadException of the subclass that names the fault.
     */
    fun read(data: ByteArray, text: String): Map<Int, DoubleArray> {
        val sizes = HEADER_BYTES..HEADER_BYTES + 4 * slots.size + 8
        if (data.size !in sizes) throw MalformedPayloadException("decisions: expected $sizes bytes, found ${data.size}")
        val mark = data[0].toInt() and 0xFF
        if (mark and 0xFE != MARK) throw VersionException("decisions: expected byte 0 of $MARK, found $mark")
        val expected = crc(data) xor uint16(sha256(hash, text.toByteArray()), 0)
        if (data[1] != hash[0] || uint16(data, 2) != expected) {
            throw ChecksumException("decisions: expected those of this form about this text, found others; ask again")
        }
        val coder = RangeDecoder(data.copyOfRange(HEADER_BYTES, data.size))
        val found = LinkedHashMap<Int, DoubleArray>()
        slots.forEachIndexed { at, slot ->
            if (mark and 1 == 0 || coder.uniform(2) == 1) found[at] = distribution(coder, slot.options.size)
        }
        if (coder.unread > 0 || (coder.size > 0 && data.last() == 0.toByte())) {
            throw MalformedPayloadException("decisions: expected the end, found ${coder.unread} bytes more, or a zero")
        }
        return found
    }

    companion object {
        /** The form of a JSON Schema's text. Throws [UsageException] for one without listed options. */
        @JvmStatic
        fun of(schema: String): Form {
            val parsed = try {
                Json.parse(schema)
            } catch (error: JsonException) {
                throw UsageException("form: expected a JSON Schema, found: ${error.message}")
            }
            val (_, root) = checked(parsed, "schema", mapOf<String, Any?>(), "object")
            val properties = root["properties"] as? Map<*, *> ?: mapOf<String, Any?>()
            val parts = ArrayList<Any>()
            var before = "{"
            for ((key, stated) in properties) {
                val name = key as String
                val (kind, asked) = checked(stated, name, root, "boolean", "integer", "enum", "array")
                val says = asked["description"] as String
                before += "${quoted(name)}: "
                if (kind == "array") {
                    before += "{"
                    val (_, items) = checked(asked["items"], name, root, "enum")
                    for (member in values(name, "enum", items)) {
                        parts += "$before${quoted(member as? String ?: json(member))}:"
                        parts += Slot(name, listOf(" true", " false"), listOf(true, false), says, member, ofSet = true)
                        before = ", "
                    }
                    before = "}, "
                } else {
                    val values = values(name, kind, asked)
                    val texts = values.all { it is String }
                    parts += if (texts) "$before\"" else before.dropLast(1)
                    val options = values.map { if (texts) json(it).drop(1).dropLast(1) else " ${json(it)}" }
                    parts += Slot(name, options, values, says)
                    before = if (texts) "\", " else ", "
                }
            }
            return Form(parts + "${before.dropLast(2)}}", root["description"] as String)
        }
    }
}

private fun distribution(coder: RangeDecoder, size: Int): DoubleArray {
    val found = DoubleArray(size)
    val left = (0 until size).toMutableList()
    var mass = 1.0
    for (steps in STEPS.take(if (size <= 4) 3 else 2)) {
        if (left.size == 1 || mass < LITTLE) break
        val least = asin(sqrt(1.0 / left.size))
        val option = left.removeAt(coder.uniform(left.size))
        val root = sin(least + (coder.uniform(steps) + 0.5) * (PI / 2 - least) / steps)
        found[option] = mass * root * root
        mass *= 1 - root * root
    }
    for (option in left) found[option] = mass / left.size
    return found
}

/** The kind of a schema, and the schema with what it refers to in its place. */
private fun checked(stated: Any?, where: String, root: Map<*, *>, vararg kinds: String): Pair<String, Map<*, *>> {
    check(stated is Map<*, *>, where, "a JSON Schema, an object", stated)
    val own = stated as Map<*, *>
    val target = (root["\$defs"] as? Map<*, *>)?.get((own["\$ref"] as? String)?.removePrefix("#/\$defs/")) as? Map<*, *>
    val found = mapOf("description" to "") + (target ?: mapOf<String, Any?>()) + own
    val kind = if ("enum" in found) "enum" else found["type"] ?: "object"
    check(kind in kinds && found["description"] is String, where, kinds.joinToString(" or "), kind)
    return kind as String to found
}

private fun values(name: String, kind: String, asked: Map<*, *>): List<Any?> {
    if (kind == "boolean") return listOf(true, false)
    if (kind == "integer") {
        val low = asked["minimum"] as? Long ?: Long.MAX_VALUE
        val high = asked["maximum"] as? Long ?: Long.MAX_VALUE
        check(low < high && high - MAX_OPTIONS < low, name, "2 to $MAX_OPTIONS whole numbers", "$low to $high")
        return (low..high).toList()
    }
    val values = asked["enum"] as? List<*>
    val scalars = values.orEmpty().all { it == null || it is String || it is Long || it is Boolean }
    check(values != null && scalars, name, "strings, whole numbers, booleans or null", values)
    return values.orEmpty()
}

private fun json(value: Any?): String = if (value is String) quoted(value) else value.toString()

/** A string as JSON, with characters beyond ASCII as they are. */
private fun quoted(text: String): String = buildString {
    for (char in text) append(if (char >= '\u007F') char else Json.quote(char.toString()).drop(1).dropLast(1))
    insert(0, '"').append('"')
}

private fun check(fine: Boolean, where: String, expected: String, found: Any?) {
    if (!fine) throw UsageException("$where: expected $expected, found ${found.toString().take(80)}")
}
