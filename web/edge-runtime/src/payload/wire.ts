/** Decodes a whole payload: contract, base, prompt, check, body. payload/SPEC.md defines the format. */
import { AnchorSet } from "../anchor-set.js";
import { type Bytes, concat, sha256, toHex } from "../bytes.js";
import type { Contract } from "../contract.js";
import {
  AnchorRangeError,
  BasePayloadError,
  ContractMismatchError,
  FingerprintError,
  MalformedPayloadError,
  PromptRequiredError,
  TokenizerRequiredError,
} from "../errors.js";
import { expectedCheck, hexCheck, statedCheck, verifyChecksum } from "./checksum.js";
import { CompactCodec } from "./codecs/compact-codec.js";
import type { DecodedBody } from "./codecs/decoded-body.js";
import type { DecodedToken } from "./codecs/predictive-codec.js";
import { Prior } from "./codecs/prior.js";
import { type Header, isBound } from "./header.js";
import { openPayload } from "./opened-payload.js";
import type { Base, Predictor, Shared } from "./shared.js";

/**
 * The anchors of a payload; for a delta, the anchors of its base and its own.
 *
 * @throws PayloadError of the subclass that names the fault.
 */
export async function decode(payload: Uint8Array, shared: Shared): Promise<AnchorSet> {
  const data: Bytes = Uint8Array.from(payload);
  const { header, body } = await openPayload(data);
  if (header.codec === "predictive") {
    const tokens = decodePredictive(data, shared);
    for (;;) {
      const next = await tokens.next();
      if (next.done) return next.value;
    }
  }
  const { contract } = shared;
  const model = isBound(header.codec) ? rightModel(header, shared.predictor) : undefined;
  if (!model && header.tag !== contract.tag) {
    const expected = `tag ${contract.tag} of contract ${contract}`;
    const remedy = "Use the model bundle that it was made for, or ask for a payload for this one";
    throw new ContractMismatchError("contract", expected, `a payload with tag ${header.tag}`, remedy);
  }
  const base = checkedBase(header, shared.base);
  const promptIds = header.needsPrompt ? requiredPrompt(header, model?.promptIds ?? shared.promptIds) : null;
  const bound = { codec: header.codec, contract, promptIds, base, text: model?.identity };
  if (header.codec !== "template-gzip") {
    const prior = await Prior.load();
    verifyChecksum(data, { ...bound, model: prior.hash });
    const found = CompactCodec.decode(body, prior, contract, promptIds ?? [], base?.anchors ?? null);
    return anchorSet(found, header, contract);
  }
  verifyChecksum(data, bound);
  if (!shared.tokens) throw new TokenizerRequiredError(`codec ${header.codec}`, "a tokenizer", "none");
  const { decodeTemplate } = await import("./codecs/template-codec.js");
  return anchorSet(await decodeTemplate(body, shared.tokens), header, contract);
}

/** The anchors of a body; throws AnchorRangeError where the confidences are not theirs. */
function anchorSet(body: DecodedBody, header: Header, contract: Contract): AnchorSet {
  const anchors = AnchorSet.of(body.anchors, body.canvas, contract, body.length);
  const levels = header.extras.confidence.length;
  if (levels > 0 && levels !== anchors.size) {
    throw new AnchorRangeError("confidence", `one level per anchor, ${anchors.size}`, levels);
  }
  return anchors;
}

/** The base of a delta, checked against its reference; null for any other payload. */
function checkedBase(header: Header, given: Base | undefined): Base | null {
  const wanted = header.baseRef;
  if (wanted === null) return null;
  const found = given && toHex(sha256(given.data).subarray(0, 1));
  if (given && found === wanted) return given;
  const remedy = "Decode the payloads of a stream in order and pass the one before";
  throw new BasePayloadError(
    "base",
    `the payload with reference ${wanted} that this one adds to`,
    found ?? "none",
    remedy,
  );
}

function requiredPrompt(header: Header, given: readonly number[] | undefined): readonly number[] {
  if (given) return given;
  const remedy =
    header.extras.prompt === null
      ? "Give the prompt beside the payload"
      : "Put the text that the payload carries in the chat template and tokenise it";
  throw new PromptRequiredError("prompt", "the ids of the prompt that the payload was made with", "none", remedy);
}

const COMPACT = "Ask for codec compact";

/**
 * Decodes a payload of codec predictive, one pass of the model per position. Only at the end is it known whether the
 * tokens are right: where FingerprintError is thrown, those yielded must be discarded.
 */
export async function* decodePredictive(data: Bytes, shared: Shared): AsyncGenerator<DecodedToken, AnchorSet> {
  const { header, body } = await openPayload(data);
  const { contract } = shared;
  const predictor = rightModel(header, shared.predictor);
  const base = checkedBase(header, shared.base);
  const { PredictiveCodec } = await import("./codecs/predictive-codec.js");
  const codec = new PredictiveCodec(body, contract.vocabSize, predictor, base?.anchors ?? null);
  let found: DecodedBody;
  try {
    found = yield* codec.tokens();
  } catch (error) {
    // With other predictions a body decodes to nonsense, which breaks a rule here or fails the check.
    if (!(error instanceof MalformedPayloadError || error instanceof AnchorRangeError)) throw error;
    throw otherPredictions(error.expected, error.found);
  }
  const text = concat(predictor.identity, codec.digest());
  const bound = { codec: header.codec, contract, promptIds: predictor.promptIds, base, text };
  const [stated, expected] = [statedCheck(data), expectedCheck(data, bound)];
  if (stated !== expected) throw otherPredictions(`check ${hexCheck(expected)}`, `${hexCheck(stated)} in bytes 2-3`);
  return anchorSet(found, header, contract);
}

/** The model that a payload is bound to; throws FingerprintError where it is another. */
function rightModel(header: Header, model: Predictor | undefined): Predictor {
  if (!model) throw new FingerprintError(`codec ${header.codec}`, "the device's model", "none", COMPACT);
  const tag = toHex(model.identity.subarray(0, 1));
  if (header.tag === tag) return model;
  const remedy = "Use the bundle and variant it was made with, or ask for codec compact";
  throw new FingerprintError("fingerprint", `tag ${tag} of this model`, `a payload with tag ${header.tag}`, remedy);
}

function otherPredictions(expected: string, found: string): FingerprintError {
  const remedy =
    "The model's predictions are not those the payload was written with (another prompt, or a processor whose numbers " +
    `differ by more than the tolerance), or its bytes were changed on their way. ${COMPACT}`;
  return new FingerprintError("fingerprint", expected, found, remedy);
}
