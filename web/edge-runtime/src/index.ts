/** The public names of the edge runtime. */
export { AnchorSet, MAX_CANVAS } from "./anchor-set.js";
export { Contract, type ContractFields } from "./contract.js";
export * from "./errors.js";
export { type Codec, doubt, type Extras, type Header } from "./payload/header.js";
export { MAX_PAYLOAD_BYTES, peek } from "./payload/opened-payload.js";
export type { Base, Predictor, Shared, TokenBytes } from "./payload/shared.js";
export { decode } from "./payload/wire.js";
