/** Decodes a whole payload of codec predictive. */
import type { AnchorSet } from "../anchor-set.js";
import { type Bytes, concat, toHex } from "../bytes.js";
import { AnchorRangeError, FingerprintError, MalformedPayloadError } from "../errors.js";
import { expectedCheck, hexCheck, statedCheck } from "./checksum.js";
import type { DecodedBody } from "./codecs/decoded-body.js";
import { type DecodedToken, PredictiveCodec } from "./codecs/predictive-codec.js";
import { openPayload } from "./opened-payload.js";
import type { Shared } from "./shared.js";
import { anchorSet, checkedBase } from "./wire.js";

const COMPACT = "Ask for codec compact";

/**
 * Decodes a payload of codec predictive, one pass of the model per position. Only at the end is it known whether the
 * tokens are right: where FingerprintError is thrown, those yielded must be discarded.
 */
export async function* decodePredictive(data: Bytes, shared: Shared): AsyncGenerator<DecodedToken, AnchorSet> {
  const { header, body } = await openPayload(data);
  const { predictor, contract } = shared;
  if (!predictor) throw new FingerprintError(`codec ${header.codec}`, "the device's model", "none", COMPACT);
  const tag = toHex(predictor.identity.subarray(0, 1));
  if (header.tag !== tag) {
    const remedy = "Use the bundle and variant it was made with, or ask for codec compact";
    throw new FingerprintError("fingerprint", `tag ${tag} of this model`, `a payload with tag ${header.tag}`, remedy);
  }
  const base = checkedBase(header, shared.base);
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

function otherPredictions(expected: string, found: string): FingerprintError {
  const remedy =
    "The model's predictions are not those the payload was written with (another prompt, or a processor whose numbers " +
    `differ by more than the tolerance), or its bytes were changed on their way. ${COMPACT}`;
  return new FingerprintError("fingerprint", expected, found, remedy);
}
