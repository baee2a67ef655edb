/** What few answers need: codecs predictive and template, packed prompts, kept caches. Loaded when they come. */
export { EnginePredictor } from "./engine/engine-predictor.js";
export { withFp32Activations } from "./engine/fp32-activations.js";
export { keptCache, restoreCache } from "./engine/kept-cache.js";
export { inflate } from "./payload/codecs/compression.js";
export { decodeTemplate } from "./payload/codecs/template-codec.js";
export { decodePredictive } from "./payload/predictive.js";
