package inversespec.edge.payload

import inversespec.edge.*
import inversespec.edge.payload.codecs.*

/** Decodes a whole payload: contract, base, prompt, check, body. payload/SPEC.md defines the format. */
internal object Wire {
    fun decode(data: ByteArray, shared: Shared): AnchorSet {
        val payload = openPayload(data)
        val header = payload.header
        val contract = shared.contract
        if (header.codec == Codec.PREDICTIVE) return decodePredictive(data, shared) { _, _, _, _ -> }
        val bound = if (header.codec.bound) rightPredictor(header, shared) else null
        if (bound == null && header.tag != contract.tag) {
            throw ContractMismatchException(
                "contract: expected tag ${contract.tag} of contract $contract, found a payload with tag " +
                    "${header.tag}; use the model bundle that it was made for, or ask for a payload for this one",
            )
        }
        val base = checkedBase(header, shared.base)
        val promptIds = if (header.needsPrompt) requiredPrompt(header, bound?.promptIds ?: shared.promptIds) else null
        verifyChecksum(data, header.codec, contract, promptIds, base, bound?.identity)
        val body = if (header.codec != Codec.TEMPLATE_GZIP) {
            CompactCodec.decode(payload.body, contract, promptIds ?: IntArray(0), base?.anchors)
        } else {
            TemplateCodec.decode(payload.body, tokenizer(header, shared))
        }
        return anchorSet(body, header, contract)
    }

    /**
     * Decodes a payload of codec predictive, one pass of the model per position. Only at the end is it known whether
     * the tokens are right: where FingerprintException is thrown, those given to [onToken] must be discarded.
     *
     * @param onToken receives position, id, whether it is an anchor, and the log probability, NaN where not computed.
     */
    fun decodePredictive(
        data: ByteArray,
        shared: Shared,
        onToken: (Int, Int, Boolean, Double) -> Unit,
    ): AnchorSet {
        val payload = openPayload(data)
        val header = payload.header
        val predictor = rightPredictor(header, shared)
        val base = checkedBase(header, shared.base)
        val codec = PredictiveCodec(payload.body, shared.contract.vocabSize, predictor, base?.anchors, onToken)
        val body = try {
            codec.decode()
        } catch (error: MalformedPayloadException) {
            // With other predictions a body decodes to nonsense, which breaks a rule here or fails the check.
            throw otherPredictions(error.message.orEmpty())
        } catch (error: AnchorRangeException) {
            throw otherPredictions(error.message.orEmpty())
        }
        val found = statedCheck(data)
        val text = predictor.identity + codec.digest
        val expected = expectedCheck(data, header.codec, shared.contract, predictor.promptIds, base, text)
        if (found != expected) {
            throw otherPredictions("expected check ${hexCheck(expected)}, found ${hexCheck(found)} in bytes 2-3")
        }
        return anchorSet(body, header, shared.contract)
    }

    /** The predictor that a payload is bound to; throws FingerprintException where it is another. */
    private fun rightPredictor(header: Header, shared: Shared): Predictor {
        val predictor = shared.predictor ?: throw FingerprintException(
            "codec ${header.codec.label}: expected the device's model (predictor), found none; ask for codec compact",
        )
        val tag = predictor.identity.copyOf(1).toHex()
        if (header.tag == tag) return predictor
        throw FingerprintException(
            "fingerprint: expected tag $tag of this model, found a payload with tag ${header.tag}; use the " +
                "bundle and variant it was made with, or ask for codec compact",
        )
    }

    private fun otherPredictions(what: String) = FingerprintException(
        "fingerprint: $what: the model's predictions are not those the payload was written with (another prompt, or " +
            "a processor whose numbers differ by more than the tolerance), or its bytes were changed on their way; " +
            "ask for codec compact",
    )

    private fun anchorSet(body: DecodedBody, header: Header, contract: Contract): AnchorSet {
        val anchors = AnchorSet.of(body.anchors, body.canvas, contract, body.length)
        val levels = header.extras.confidence.size
        if (levels > 0 && levels != anchors.size) {
            throw AnchorRangeException(
                "expected one confidence level per anchor, found $levels for ${anchors.size} anchors",
            )
        }
        return anchors
    }

    /** The base of a delta, checked against its reference; null for any other payload. */
    private fun checkedBase(header: Header, given: Base?): Base? {
        val wanted = header.baseRef ?: return null
        val found = given?.let { sha256(it.data).copyOf(1).toHex() }
        if (found == wanted) return given
        throw BasePayloadException(
            "base: expected the payload with reference $wanted that this one adds to, found ${found ?: "none"}; " +
                "decode the payloads of a stream in order and pass the one before",
        )
    }

    private fun requiredPrompt(header: Header, given: IntArray?): IntArray {
        if (given != null) return given
        val remedy = if (header.extras.prompt == null) {
            "give the prompt beside the payload"
        } else {
            "put the text that the payload carries in the chat template and tokenise it"
        }
        throw PromptRequiredException(
            "prompt: expected the ids of the prompt that the payload was made with, found none; $remedy",
        )
    }

    private fun tokenizer(header: Header, shared: Shared): TokenBytes =
        shared.tokens ?: throw TokenizerRequiredException(
            "codec ${header.codec.label}: expected a tokenizer, found none",
        )
}
