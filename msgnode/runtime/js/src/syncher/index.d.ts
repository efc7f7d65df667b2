/** Types of data objects. */

import type { Bus, Item } from "../index.js";

export interface Change {
  /** Path of names and indexes, joined by dots; "" after all was read anew. */
  attribute: string;
  /** Missing: the attribute was removed. */
  value?: any;
  attributeType?: "array";
  operation?: "add" | "remove";
}

export interface Child { readonly id: string; readonly source: string; readonly value: any }
export interface ChildEvent extends Child { type: "create" | "update" | "delete" }

export interface ObjectOptions {
  name?: string;
  /** URL of a schema; its name decides the scheme of the address. */
  schema?: string;
  scheme?: string;
  resources?: string[];
  /** An address to use again. */
  url?: string;
  /** Keep it for resume(). */
  store?: boolean;
  domain_registration?: boolean;
  domain_routing?: boolean;
}

interface DataObject<Data> {
  readonly url: string;
  readonly schema: string;
  readonly name: string;
  /** The hyperty that reports it. */
  readonly reporter: string;
  readonly data: Data;
  readonly children: readonly Child[];
  onChild(listener: (event: ChildEvent) => unknown): Item;
  /** Resolves with the child's id once the reporter has taken it. */
  addChild(value: any, id?: string): Promise<string>;
  updateChild(id: string, value: any): Promise<void>;
  removeChild(id: string): Promise<void>;
}

type Judgement = boolean | void | Promise<boolean | void>;

/** The one copy of a data object that may be changed; made by Syncher.create(). */
export class DataObjectReporter<Data extends object = any> implements DataObject<Data> {
  private constructor();
  readonly url: string;
  readonly schema: string;
  readonly name: string;
  readonly reporter: string;
  /** Change it as any other object; observers get each change. */
  readonly data: Data;
  readonly version: number;
  readonly observers: readonly string[];
  readonly children: readonly Child[];
  onSubscription(judge: (asked: { hyperty: string; identity?: any; isAsserted: boolean }) => Judgement): void;
  onRead(judge: (asked: { from: string }) => Judgement): void;
  onChild(listener: (event: ChildEvent) => unknown): Item;
  addChild(value: any, id?: string): Promise<string>;
  updateChild(id: string, value: any): Promise<void>;
  removeChild(id: string): Promise<void>;
  /** Address to the code of its answer; below 300 is a yes. */
  invite(addresses: string | readonly string[]): Promise<Map<string, number>>;
  delete(): Promise<void>;
}

/** A copy of a data object, for reading; made by Syncher.subscribe(). */
export class DataObjectObserver<Data extends object = any> implements DataObject<Readonly<Data>> {
  private constructor();
  readonly url: string;
  readonly schema: string;
  readonly name: string;
  readonly reporter: string;
  readonly data: Readonly<Data>;
  readonly version: number | null;
  readonly status: "live" | "disconnected" | "ended";
  readonly children: readonly Child[];
  onChange(listener: (change: Change) => unknown): Item;
  onChild(listener: (event: ChildEvent) => unknown): Item;
  onStatus(listener: (status: "live" | "disconnected" | "ended") => unknown): Item;
  addChild(value: any, id?: string): Promise<string>;
  updateChild(id: string, value: any): Promise<void>;
  removeChild(id: string): Promise<void>;
  unsubscribe(): Promise<void>;
}

/** A reporter invites to observe its object. */
export interface ObjectInvitation { url: string; schema?: string; name?: string; from?: string; identity?: any }

/** Data objects for a hyperty. Errors have a `code`. */
export class Syncher {
  constructor(hyperty: { url: string; bus: Bus; runtimeURL: string });
  create<Data extends object>(data: Data, options?: ObjectOptions): Promise<DataObjectReporter<Data>>;
  subscribe<Data extends object = any>(url: string, options?: { schema?: string; identity?: any }): Promise<DataObjectObserver<Data>>;
  /** Resolves once the hyperty can be reached. */
  onInvitation(judge: (invitation: ObjectInvitation) => Judgement): Promise<void>;
  resume(criteria?: { resource?: string; schema?: string; name?: string }): Promise<DataObjectReporter[]>;
  resumeObservers(criteria?: { resource?: string; schema?: string; name?: string }): Promise<DataObjectObserver[]>;
  close(): Promise<void>;
}
