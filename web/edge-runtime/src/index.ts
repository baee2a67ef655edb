/** The public names of the edge runtime. */

export { AnchorSet, MAX_CANVAS } from "./anchor-set.js";
export type { OnProgress } from "./bundle/files.js";
export { type BundleStore, CacheStore } from "./bundle/store.js";
export { type ClientOptions, type Fields, type ReceivedPayload, ServiceClient } from "./client/service-client.js";
export { Contract, type ContractFields } from "./contract.js";
export type { FillOptions } from "./decode/forced-decoder.js";
export type { AskOptions, Mode } from "./decode/online-answer.js";
export {
  type Answer,
  type Cloud,
  type Edge,
  EdgeModel,
  type ModelInfo,
  type OpenOptions,
  type Provider,
} from "./edge-model.js";
export { EdgeSession, type SessionOptions, TurnAnswer, type TurnOptions } from "./edge-session.js";
export type { Ort, OrtSession, OrtTensor } from "./engine/ort.js";
export * from "./errors.js";
export { Form, type Scalar, type Slot } from "./form.js";
export { type Codec, doubt, type Extras, type Header } from "./payload/header.js";
export { MAX_PAYLOAD_BYTES, peek } from "./payload/opened-payload.js";
export type { Base, Predictor, Shared, TokenBytes } from "./payload/shared.js";
export { decode } from "./payload/wire.js";
export type { ChatMessage, Prompt } from "./text/chat-template.js";
export type { AnswerEvent, FillStats, ServiceReport, Source, Stop, Token } from "./token.js";
export { EdgeWorker, type WorkerOptions } from "./worker/edge-worker.js";
