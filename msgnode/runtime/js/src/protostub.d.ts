/** Types of the stub by itself. Times are in milliseconds. */

import type { Message } from "./index.js";

export interface StubBus {
  addListener(address: string, listener: (message: Message) => unknown): unknown;
  postMessage(message: any): unknown;
}

export interface StubConfiguration {
  /** ws or wss */
  url: string;
  runtimeURL: string;
  WebSocket?: any;
  connectTimeout?: number; replyTimeout?: number; minDelay?: number; maxDelay?: number;
  stagger?: number; stableAfter?: number;
  /** characters */
  maxQueue?: number;
  /** bytes */
  maxFrame?: number; maxBuffer?: number;
}

export default class MessagingNodeProtoStub {
  connect(identity?: any): Promise<any>;
  disconnect(): Promise<void>;
}

export const NAME: string;
export const DEFAULTS: Readonly<Record<string, number>>;
/** Milliseconds before try number `attempt`. */
export function backOff(attempt: number, settings?: { minDelay: number; maxDelay: number }, random?: () => number): number;
/** Milliseconds within which to come back to a node that restarts. */
export function spread(reason: string, settings?: { stagger: number }): number;
export function activate(stubURL: string, bus: StubBus, config: StubConfiguration): { name: string; instance: MessagingNodeProtoStub };
