/** Content of a body of any codec. */
export interface DecodedBody {
  /** Token ids by position. */
  readonly anchors: ReadonlyMap<number, number>;
  readonly canvas: number;
  /** Length of the answer; null where unknown. */
  readonly length: number | null;
}
