/** The buffers of a model's keys and values: they start small and double as they fill. */
import type { ModelShape } from "../bundle/manifest.js";
import type { Ort, OrtTensor } from "./ort.js";

/** Minimum capacity, in tokens. */
const MIN_CAPACITY = 64;

export class KvCache {
  /** Of the tensors, in order: keys and values, layer by layer. */
  readonly names: readonly string[];
  /** float32[1, heads, capacity, headDim] each; none before the first `reserve`. */
  tensors: readonly OrtTensor[] = [];
  /** Tokens that there is room for. */
  capacity = 0;

  constructor(
    private readonly _ort: Ort,
    readonly shape: ModelShape,
    private readonly _context: number,
  ) {
    this.names = Array.from({ length: shape.layers }, (_, layer) => [`${layer}.key`, `${layer}.value`]).flat();
  }

  /** Makes room for `total` tokens; keeps the first `held`. */
  reserve(total: number, held: number): void {
    if (total > this.capacity) this._copy(this, total, held);
  }

  /** A cache that begins with the first tokens of this one. */
  fork(tokens: number): KvCache {
    const other = new KvCache(this._ort, this.shape, this._context);
    if (tokens) other._copy(this, tokens, tokens);
    return other;
  }

  get bytes(): number {
    return 4 * this.names.length * this.shape.kvHeads * this.shape.headDim * this.capacity;
  }

  private _copy(other: KvCache, total: number, held: number): void {
    const { kvHeads, headDim } = this.shape;
    const room = Math.min(Math.max(MIN_CAPACITY, 2 ** Math.ceil(Math.log2(total))), this._context);
    const before = other.tensors.map((tensor) => tensor.data as Float32Array);
    const [from, to] = [other.capacity * headDim, room * headDim];
    this.tensors = this.names.map((_, index) => {
      const data = new Float32Array(kvHeads * to);
      for (let head = 0; head < kvHeads && before[index]; head++) {
        data.set(before[index].subarray(head * from, head * from + held * headDim), head * to);
      }
      return new this._ort.Tensor("float32", data, [1, kvHeads, room, headDim]);
    });
    this.capacity = room;
  }
}
