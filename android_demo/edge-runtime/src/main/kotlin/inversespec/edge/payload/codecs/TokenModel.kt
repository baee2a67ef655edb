package inversespec.edge.payload.codecs

/** Number of significant bits; 0 for 0. */
internal fun bitLength(number: Int): Int = 32 - Integer.numberOfLeadingZeros(number)

private const val MAX_SCORE = 384

private val FRACTIONS = intArrayOf(
    32768, 34219, 35734, 37316, 38968, 40693, 42495, 44376,
    46341, 48393, 50535, 52773, 55109, 57549, 60097, 62757,
)

private val MASS = LongArray(MAX_SCORE + 1) { FRACTIONS[it and 15].toLong() shl (it shr 4) shr 15 }

/** 2^(score / 16) as an integer, for scores clamped to 0..384. */
private fun mass(score: Int): Long = MASS[score.coerceIn(0, MAX_SCORE)]

/**
 * Adaptive model of the next token: the integer log-linear model of payload/SPEC.md, "The token model".
 *
 * Decodes one answer's tokens in ascending position and adapts to each.
 */
internal class TokenModel(prior: Prior, private val vocabSize: Int, promptIds: IntArray) {
    private val weights = prior.weights
    private val words = prior.words
    private val tokens = ArrayList<Int>()
    private val alike = ArrayList<Int>()
    private val places = HashMap<Int, ArrayList<Int>>()
    private val promptCount = HashMap<Int, Int>()
    private val answerCount = HashMap<Int, Int>()
    private val answerStart: Int
    private var coded = 0

    // Slots: every token with a class, then the tokens of prompt and answer by first occurrence.
    private val slotOf = HashMap<Int, Int>()
    private val slots = ArrayList<Int>()
    private val bases = ArrayList<Int>()
    private val masses = FenwickTree()

    init {
        words.classes.keys.forEach(::updateSlot)
        val used = promptIds.takeLast(MAX_PROMPT_IDS)
        for (token in used) {
            append(token)
            if (token in 0 until vocabSize) promptCount[token] = (promptCount[token] ?: 0) + 1
        }
        for (token in used) if (token in 0 until vocabSize) updateSlot(token)
        answerStart = tokens.size
        append(START)
    }

    /** Skips one or more positions without a token. */
    fun gap() {
        if (tokens.last() != GAP) append(GAP)
    }

    /** Adds a known token at the next position. */
    fun push(token: Int) {
        append(token)
        answerCount[token] = (answerCount[token] ?: 0) + 1
        updateSlot(token)
    }

    /** Decodes the token at the next position, or [END] where [mayEnd]. */
    fun decode(decoder: RangeDecoder, mayEnd: Boolean): Int {
        val (all, longest) = contextCandidates()
        val candidates = if (mayEnd) all else all.subList(1, all.size)
        val sizes = LongArray(candidates.size) { mass(score(candidates[it])) }
        val hidden = candidates.mapNotNull { slotOf[it.id] }.sorted()
        val slotsAt = sizes.sum()
        val escapeAt = slotsAt + masses.total - hidden.sumOf { masses[it] }
        val escape = mass(weights.escape[minOf(longest, 4) + if (tokens.last() >= 0) 5 else 0])
        val whole = escapeAt + escape
        val target = decoder.target(whole)
        val token: Int
        if (target < slotsAt) {
            var index = 0
            var start = 0L
            while (target >= start + sizes[index]) start += sizes[index++]
            decoder.take(start, sizes[index], whole)
            token = candidates[index].id
        } else if (target < escapeAt) {
            // What the hidden slots before the target would take.
            var skipped = 0L
            for (slot in hidden) {
                if (masses.before(slot) > target - slotsAt + skipped) break
                skipped += masses[slot]
            }
            val slot = masses.find(target - slotsAt + skipped)
            decoder.take(slotsAt + masses.before(slot) - skipped, masses[slot], whole)
            token = slots[slot]
        } else {
            decoder.take(escapeAt, escape, whole)
            token = escaped(decoder)
        }
        coded++
        if (token != END) push(token)
        return token
    }

    /** Decodes an arbitrary id: (bit length of id + 1) - 1, then its index among the ids of that length. */
    private fun escaped(decoder: RangeDecoder): Int {
        val bits = decoder.choice(weights.escapeBits.copyOf(bitLength(vocabSize)))
        val first = (1 shl bits) - 1
        return first + decoder.uniform(minOf(1 shl bits, vocabSize - first))
    }

    private fun append(token: Int) {
        val compared = words.alike[token] ?: token
        places.getOrPut(compared, ::ArrayList).add(tokens.size)
        tokens.add(token)
        alike.add(compared)
    }

    /** The score of a token without evidence from a context. */
    private fun base(token: Int): Int {
        val known = words.classes[token] ?: 0
        val inPrompt = promptCount[token] ?: 0
        val inAnswer = answerCount[token] ?: 0
        return (if (inPrompt > 0 || inAnswer > 0) weights.seen else weights.unseen)[known] +
            weights.rank[if (known > 0) 0 else minOf(17, bitLength(token + 1))] +
            weights.promptCount[if (inPrompt < 7) COUNT_CLASS[inPrompt] else 4] +
            weights.answerCount[minOf(3, inAnswer)]
    }

    /** Adds a slot for a token, or updates the mass of its slot. */
    private fun updateSlot(token: Int) {
        val score = base(token)
        val size = mass(score)
        val slot = slotOf[token]
        if (slot == null) {
            slotOf[token] = slots.size
            slots.add(token)
            bases.add(score)
            masses.add(size)
        } else {
            bases[slot] = score
            masses[slot] = size
        }
    }

    /**
     * A token with evidence from the context: classes of its pair and triple statistics, and of its matches in the
     * prompt and in the answer. For [END], `promptMatch` is the best match in the prompt of a token that ends a line.
     */
    private class ContextCandidate(
        val id: Int,
        val pair: Int,
        val triple: Int,
        val promptMatch: Int,
        val answerMatch: Int,
    )

    /** [END], then the tokens with evidence from the context; and the length of the longest match. */
    private fun contextCandidates(): Pair<List<ContextCandidate>, Int> {
        val last = tokens.last()
        val pairs = words.pairs(last)
        val triples = if (last >= 0) words.triples(tokens[tokens.size - 2], last) else emptyMap()
        val prompt = Matches()
        val answer = Matches()
        if (last >= 0) match(prompt, answer)
        var line = 0
        val found = ArrayList<ContextCandidate>()
        for (token in LinkedHashSet(pairs.keys) + triples.keys + prompt.lengths.keys + answer.lengths.keys) {
            if (token == END) continue
            val near = prompt.classOf(token)
            found.add(ContextCandidate(token, pairs[token] ?: 0, triples[token] ?: 0, near, answer.classOf(token)))
            if (near > line && token in words.breaks) line = near
        }
        val end = ContextCandidate(END, pairs[END] ?: 0, triples[END] ?: 0, line, 0)
        return listOf(end) + found to maxOf(prompt.longest, answer.longest)
    }

    private fun score(token: ContextCandidate): Int {
        if (token.id == END) {
            return weights.endPair[token.pair] + weights.triple[token.triple] +
                weights.endLine[token.promptMatch] + weights.endAge[minOf(6, bitLength(coded + 1))]
        }
        val base = slotOf[token.id]?.let(bases::get) ?: base(token.id)
        val statistics = if (token.pair or token.triple != 0) 1 else 0
        val group = statistics + if (token.promptMatch or token.answerMatch != 0) 2 else 0
        return base + (base * weights.scale[group] shr 4) + weights.source[group] + weights.pair[token.pair] +
            weights.triple[token.triple] + weights.promptMatch[token.promptMatch] +
            weights.answerMatch[token.answerMatch]
    }

    /** Tokens that followed earlier occurrences of the current context, each with its longest matching context. */
    private class Matches {
        val lengths = LinkedHashMap<Int, Int>()
        val longest: Int get() = lengths.values.maxOrNull() ?: 0

        fun offer(token: Int, length: Int) {
            if (length > (lengths[token] ?: 0)) lengths[token] = length
        }

        /** Match class: 0 for none; else by length and rank: not the longest, one of the longest, the longest. */
        fun classOf(token: Int): Int {
            val length = lengths[token] ?: return 0
            val alone = lengths.values.count { it == longest } == 1
            return 1 + 3 * (length - 1) + if (length < longest) 0 else if (alone) 2 else 1
        }
    }

    private fun match(prompt: Matches, answer: Matches) {
        val end = tokens.size - 1
        val same = places.getValue(alike[end])
        // The last occurrence is the end itself.
        for (index in same.size - 2 downTo maxOf(0, same.size - 1 - MAX_OCCURRENCES)) {
            val place = same[index]
            val token = tokens[place + 1]
            if (token !in 0 until vocabSize) continue
            var length = 1
            while (length < MAX_MATCH && length <= place &&
                alike[place - length] == alike[end - length] && alike[end - length] >= 0
            ) {
                length++
            }
            (if (place < answerStart) prompt else answer).offer(token, length)
        }
    }

    private companion object {
        /** Pseudo-token for one or more positions without a token; no context extends across it. */
        const val GAP = -3
        const val MAX_PROMPT_IDS = 4096
        const val MAX_OCCURRENCES = 24
        const val MAX_MATCH = 6
        val COUNT_CLASS = intArrayOf(0, 1, 2, 2, 3, 3, 3)
    }
}
