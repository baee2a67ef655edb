/** AnchorSet: tokens that the diffusion model has committed, with their positions. */
import type { Contract } from "./contract.js";
import { AnchorRangeError } from "./errors.js";

/** Maximum number of response positions: bounds the memory that a hostile payload can claim. */
export const MAX_CANVAS = 65_536;

/** Tokens committed by the diffusion model. Immutable, and consistent: the constructor throws AnchorRangeError. */
export class AnchorSet {
  /** Token ids by position, in ascending order of position. */
  readonly byPosition: ReadonlyMap<number, number>;

  /**
   * @param positions 0-based in the response, strictly ascending, each below `canvas`.
   * @param ids token ids, one per position, each an ordinary one of the contract.
   * @param canvas number of response positions that the diffusion model denoised.
   * @param length number of response tokens before the first end marker; null where unknown.
   */
  constructor(
    readonly positions: readonly number[],
    readonly ids: readonly number[],
    readonly canvas: number,
    readonly contract: Contract,
    readonly length: number | null = null,
  ) {
    const refuse = (where: string, expected: string, found: unknown): never => {
      throw new AnchorRangeError(where, expected, found);
    };
    if (positions.length !== ids.length) refuse("anchors", `${positions.length} ids`, ids.length);
    if (!(canvas >= 1 && canvas <= MAX_CANVAS)) refuse("canvas", `1 to ${MAX_CANVAS} positions`, canvas);
    const end = length ?? canvas;
    if (!(end >= 0 && end <= canvas)) refuse("length", `at most the canvas of ${canvas} positions`, end);
    let previous = -1;
    positions.forEach((position, at) => {
      const id = ids[at] ?? -1;
      if (position <= previous) refuse("anchor positions", `ascending ones, above ${previous}`, position);
      if (position >= end) refuse("anchor position", `one in the response, below ${end}`, position);
      if (!(id >= 0 && id < contract.vocabSize)) {
        refuse(`token id at position ${position}`, `0 to ${contract.vocabSize - 1}`, id);
      }
      if (contract.reserved.has(id)) refuse(`token id at position ${position}`, "an ordinary token", `special ${id}`);
      previous = position;
    });
    this.byPosition = new Map(positions.map((position, at) => [position, ids[at] ?? -1]));
  }

  /** The anchors of token ids by position, in any order. */
  static of(
    tokens: ReadonlyMap<number, number>,
    canvas: number,
    contract: Contract,
    length: number | null = null,
  ): AnchorSet {
    const positions = [...tokens.keys()].sort((a, b) => a - b);
    return new AnchorSet(
      positions,
      positions.map((position) => tokens.get(position) ?? -1),
      canvas,
      contract,
      length,
    );
  }

  /** No anchors: the edge model generates the whole answer. */
  static empty(canvas: number, contract: Contract): AnchorSet {
    return new AnchorSet([], [], Math.min(canvas, MAX_CANVAS), contract);
  }

  get size(): number {
    return this.positions.length;
  }

  /** Fraction of the response that is anchored: of its length where known, else of the canvas. */
  get coverage(): number {
    return this.size / (this.length === null ? this.canvas : Math.max(1, this.length));
  }
}
