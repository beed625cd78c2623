/** A hook for React: the rows of a live query, undefined before the first result. Make the query outside the component, or memoize it. */
import type { Followable, LiveRecord } from "quaestor-client/live";
import { useMemo, useSyncExternalStore } from "react";

export const useLive = <T = LiveRecord>(query: Followable, failed?: (error: Error) => void): T[] | undefined => {
	const [subscribe, latest] = useMemo(() => {
		const stream = query.resultStream();
		const follow = (changed: () => void) => {
			const subscription = stream.subscribe(changed, failed);
			return () => subscription.unsubscribe();
		};
		return [follow, () => stream.latest()];
	}, [query]);
	return useSyncExternalStore(subscribe, latest) as T[] | undefined;
};
